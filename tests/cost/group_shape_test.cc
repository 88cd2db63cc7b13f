#include "cost/group_shape.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "cost/collective_cost.h"
#include "topologies/named_network.h"
#include "topologies/readers/catalog.h"

using namespace orrery;

namespace {

std::vector<int> devices(int count, int first = 0, int stride = 1) {
  std::vector<int> list(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) list[static_cast<std::size_t>(i)] = first + i * stride;
  return list;
}

}  // namespace

TEST_CASE("group shape: a node's devices see NVSwitch and no network") {
  const Cluster cluster = with_nodes(load_cluster("dgx-h100"), 2);
  const Network network(cluster);
  const GroupShape shape = group_shape(network, devices(8));
  CHECK(shape.ranks == 8);
  CHECK(shape.nodes == 1);
  CHECK(shape.intra == PathClass::nvlink);
  CHECK(shape.intra_bandwidth_bytes_per_s == Approx(450e9));
  CHECK(shape.inter_bandwidth_bytes_per_s == 0);
  CHECK(shape.in_network_reduction);
  CHECK(shape.generation == "hopper");
}

TEST_CASE("group shape: a group uses the ports of its own members") {
  const Cluster cluster = with_nodes(load_cluster("dgx-h100"), 4);
  const Network network(cluster);
  // One device a node: its own 400 Gb/s. Two: two ports. All: eight.
  CHECK(group_shape(network, devices(4, 0, 8)).inter_bandwidth_bytes_per_s == Approx(50e9));
  CHECK(group_shape(network, {0, 1, 8, 9}).inter_bandwidth_bytes_per_s == Approx(100e9));
  const GroupShape all = group_shape(network, devices(32));
  CHECK(all.inter_bandwidth_bytes_per_s == Approx(400e9));
  CHECK(all.port_bandwidth_bytes_per_s == Approx(50e9));
  CHECK(all.nodes == 4);
  CHECK(all.ranks_per_node == 8);
  CHECK(all.inter_latency_s > 0);
}

TEST_CASE("group shape: several devices behind one port share it") {
  const Cluster cluster = with_nodes(load_cluster("a100-eth100"), 2);
  const Network network(cluster);
  CHECK(group_shape(network, devices(16)).inter_bandwidth_bytes_per_s == Approx(12.5e9));
  CHECK(group_shape(network, {0, 8}).inter_bandwidth_bytes_per_s == Approx(12.5e9));
}

TEST_CASE("group shape: a message to the next member has its own links, not those of all rings") {
  const Cluster cube = load_cluster("dgx-v100-32g");
  const Network network(cube);
  const GroupShape four = group_shape(network, devices(4));
  CHECK(four.neighbour_bandwidth_bytes_per_s == Approx(25e9));  // 0 to 1: one link
  CHECK(four.intra_bandwidth_bytes_per_s > 2 * four.neighbour_bandwidth_bytes_per_s);
  // A message of a ring through four takes as long as one from 0 to 1.
  const double bytes = 1e9;
  CHECK(plan_transfer(bytes, four, cube).seconds(bytes) ==
        Approx(plan_transfer(bytes, group_shape(network, devices(2)), cube).seconds(bytes)));
  // Behind a switch a device's whole port is there for whomever it sends to.
  const Cluster switched = load_cluster("dgx-h100");
  CHECK(group_shape(Network(switched), devices(4)).neighbour_bandwidth_bytes_per_s == 0);
}

TEST_CASE("group shape: a slow port slows the groups that use it, and only those") {
  Cluster cluster = with_nodes(load_cluster("dgx-h100"), 2);
  Override slow;
  slow.node = 1;
  slow.port = 3;
  slow.target = OverrideTarget::nic;
  slow.speed = 0.5;
  cluster.overrides.push_back(slow);
  const Network network(cluster);
  CHECK(group_shape(network, {3, 11}).inter_bandwidth_bytes_per_s == Approx(25e9));
  CHECK(group_shape(network, {2, 10}).inter_bandwidth_bytes_per_s == Approx(50e9));
  CHECK(group_shape(network, devices(16)).inter_bandwidth_bytes_per_s == Approx(375e9));
}

TEST_CASE("group shape: unequal parts of nodes are counted by the fullest and the emptiest") {
  const Cluster cluster = with_nodes(load_cluster("dgx-a100"), 2);
  const Network network(cluster);
  const GroupShape shape = group_shape(network, {0, 1, 2, 8});
  CHECK(shape.ranks_per_node == 3);
  CHECK(shape.min_ranks_per_node == 1);
  CHECK(shape.intra == PathClass::nvlink);
}

TEST_CASE("group shape: a hybrid mesh's bandwidth depends on which devices meet") {
  const Cluster cluster = load_cluster("dgx-v100-32g");
  const Network network(cluster);
  CHECK(group_shape(network, devices(8)).intra_bandwidth_bytes_per_s == Approx(150e9));
  CHECK(group_shape(network, devices(4)).intra_bandwidth_bytes_per_s == Approx(100e9));
  CHECK(group_shape(network, {0, 3}).intra_bandwidth_bytes_per_s == Approx(50e9));
  CHECK(group_shape(network, {0, 1}).intra_bandwidth_bytes_per_s == Approx(25e9));
  // Pairs without a link of their own go through others.
  CHECK(group_shape(network, devices(8)).all_pairs_bandwidth_bytes_per_s < 100e9);
  CHECK(group_shape(network, {0, 3}).all_pairs_bandwidth_bytes_per_s == Approx(50e9));
}

TEST_CASE("group shape: where all pairs are joined alike, rings use every link") {
  const Cluster cluster = load_cluster("mi300x-8");  // seven links of 64 GB/s
  const Network network(cluster);
  CHECK(group_shape(network, devices(8)).intra_bandwidth_bytes_per_s == Approx(7 * 64e9));
  CHECK(group_shape(network, devices(4)).intra_bandwidth_bytes_per_s == Approx(3 * 64e9));
  CHECK(group_shape(network, {2, 5}).intra_bandwidth_bytes_per_s == Approx(64e9));
  CHECK(group_shape(network, devices(8)).all_pairs_bandwidth_bytes_per_s == Approx(7 * 64e9));
}

TEST_CASE("group shape: a torus gives a group the links along its dimensions") {
  const Cluster cluster = load_cluster("tpu-v5p-8x8x8");  // six links of 100 GB/s
  const Network network(cluster);
  const GroupShape all = group_shape(network, devices(512));
  CHECK(all.intra_bandwidth_bytes_per_s == Approx(600e9));
  // Half of a ring in each of three dimensions, 1 us a hop.
  CHECK(all.intra_latency_s * 511 == Approx(12e-6));
  // Two hops a pair in the mean along each dimension.
  CHECK(all.all_pairs_bandwidth_bytes_per_s == Approx(100e9));
  // One closed dimension; half of one, which is a chain; a dimension that eight groups share.
  CHECK(group_shape(network, devices(8)).intra_bandwidth_bytes_per_s == Approx(200e9));
  CHECK(group_shape(network, devices(4)).intra_bandwidth_bytes_per_s == Approx(100e9));
  CHECK(group_shape(network, devices(4, 0, 2)).intra_bandwidth_bytes_per_s == Approx(100e9));
  CHECK(group_shape(network, devices(64, 0, 8)).intra_bandwidth_bytes_per_s == Approx(400e9));
  // Slices meet in the data centre's network.
  const Cluster two = with_nodes(cluster, 2);
  const GroupShape across = group_shape(Network(two), devices(1024));
  CHECK(across.intra_bandwidth_bytes_per_s == Approx(600e9));
  CHECK(across.inter_bandwidth_bytes_per_s == Approx(128 * 25e9));
}

TEST_CASE("group shape: PCIe devices under two bridges meet in the processors' interconnect") {
  const Cluster cluster = load_cluster("pcie-4090");
  const Network network(cluster);
  CHECK(group_shape(network, devices(4)).bridge_bandwidth_bytes_per_s == 0);
  const GroupShape both = group_shape(network, devices(8));
  CHECK(both.bridge_bandwidth_bytes_per_s > 0);
  // Four devices a side, sixteen pairs across each way, seven pairs a device: 7 / 16 of the interconnect.
  CHECK(both.all_pairs_bandwidth_bytes_per_s == Approx(both.bridge_bandwidth_bytes_per_s * 7 / 16));
  CHECK(both.intra == PathClass::pcie);
}

TEST_CASE("group shape: one member is a group of its own") {
  const Cluster cluster = load_cluster("dgx-b200");
  const Network network(cluster);
  const GroupShape shape = group_shape(network, {5});
  CHECK(shape.ranks == 1);
  CHECK(plan_collective(CollectiveKind::all_reduce, 1e9, shape, cluster).seconds(1e9) == 0);
}

TEST_CASE("collectives: every catalog cluster has every collective at every size") {
  for (const CatalogEntry& entry : catalog_clusters()) {
    if (entry.name.starts_with("localhost")) continue;
    for (const int nodes : {1, 2, 3}) {
      const Cluster cluster = with_nodes(load_cluster(entry.name), nodes);
      const Network network(cluster);
      const int all = cluster.devices();
      const int per_node = all / nodes;
      std::vector<std::vector<int>> groups = {devices(all)};
      if (nodes > 1) groups.push_back(devices(nodes, 0, per_node));
      if (per_node >= 3) groups.push_back(devices(3));
      for (const auto& group : groups) {
        const GroupShape shape = group_shape(network, group);
        for (int kind = 0; kind <= static_cast<int>(CollectiveKind::scatter); ++kind) {
          for (double bytes = 1024; bytes <= 8 * std::exp2(30); bytes *= 8) {
            INFO(entry.name << " x" << nodes << ", " << group.size() << " devices, collective " << kind
                            << ", " << bytes);
            const double s =
                plan_collective(static_cast<CollectiveKind>(kind), bytes, shape, cluster).seconds(bytes);
            REQUIRE(std::isfinite(s));
            REQUIRE((s > 0) == (group.size() > 1));
          }
        }
      }
    }
  }
}

namespace {

// What the slowest of `flows`, thrown onto `paths` by a die, keeps of its rate, in the mean of many throws.
double thrown_share(int flows, int paths, double per_path) {
  std::mt19937 random(7);
  constexpr int kThrows = 4000;
  double slowdown = 0;
  for (int t = 0; t < kThrows; ++t) {
    std::vector<int> on(static_cast<std::size_t>(paths));
    int fullest = 0;
    for (int i = 0; i < flows; ++i)
      fullest = std::max(fullest, ++on[random() % static_cast<unsigned>(paths)]);
    slowdown += std::max(1.0, fullest / per_path) / kThrows;
  }
  return 1 / slowdown;
}

}  // namespace

TEST_CASE("group shape: hashed flows keep what drawing them at random leaves") {
  CHECK(hashed_share(16, 1, 1) == 1);  // one path: its capacity says it all
  CHECK(hashed_share(0, 128, 2) == 1);
  for (const int paths : {16, 128}) {
    for (const int nodes : {1, 4, 16}) {
      for (const int per_path : {1, 2, 16}) {
        const int flows = nodes * 8 * per_path;
        INFO(paths << " paths, " << nodes << " nodes, " << per_path << " flows a port");
        CHECK(hashed_share(flows, paths, per_path) ==
              Approx(thrown_share(flows, paths, per_path)).epsilon(0.06));
      }
    }
  }
  // It ends, whatever the rounding of the sum of all terms.
  for (int mean = 1; mean <= 300; ++mean)
    for (const int paths : {64, 512, 4096}) {
      const double share = hashed_share(static_cast<double>(mean) * paths, paths, mean);
      CHECK((share > 0 && share < 1));
    }
  // Many flows are nearly normal: the two formulas meet.
  CHECK(hashed_share(301.0 * 64, 64, 300) == Approx(hashed_share(299.0 * 64, 64, 300)).epsilon(0.03));
  // More flows a port even out, more nodes that send at once collide more.
  CHECK(hashed_share(128 * 16, 128, 16) > hashed_share(128 * 2, 128, 2));
  CHECK(hashed_share(16, 128, 2) > hashed_share(256, 128, 2));
}

TEST_CASE("group shape: hashed flows slow the groups that leave their leaf, by how many do") {
  Cluster cluster = with_network(with_nodes(load_cluster("dgx-h100"), 32), "roce-8x400");
  cluster.fabric.kind = FabricKind::fat_tree;
  cluster.fabric.nodes_per_leaf = 16;
  const std::vector<int> in_order = devices(32, 0, 8);  // one a node
  const std::vector<int> beside = devices(16);
  const Network adaptive(cluster);
  const GroupShape even = group_shape(adaptive, in_order), inside = group_shape(adaptive, beside);
  Cluster hashed = cluster;
  hashed.fabric.hashes_flows = true;
  const Network hashing(hashed);
  CHECK(group_shape(hashing, beside).inter_bandwidth_bytes_per_s == inside.inter_bandwidth_bytes_per_s);
  // One node of each leaf has its neighbour in the other: 8 x 2 flows on 16 x 8 uplinks, three of which
  // seldom meet.
  const double kept =
      group_shape(hashing, in_order).inter_bandwidth_bytes_per_s / even.inter_bandwidth_bytes_per_s;
  CHECK(kept == Approx(hashed_share(16, 128, 2)));
  CHECK(kept > 0.95);
  // A pair of stages in two leaves: where all nodes have such a neighbour, all leave.
  const std::vector<int> pair = {0, 8 * 16};
  CHECK(group_shape(hashing, pair).port_bandwidth_bytes_per_s /
            group_shape(adaptive, pair).port_bandwidth_bytes_per_s ==
        Approx(hashed_share(16 * 8 * 2, 128, 2)));
  // All pairs at once are more flows and fare better than a ring that leaves everywhere.
  const GroupShape all = group_shape(hashing, in_order);
  CHECK(all.pairs_share * all.inter_bandwidth_bytes_per_s / even.inter_bandwidth_bytes_per_s ==
        Approx(hashed_share(16 * 8 * 2 * 31, 128, 2 * 31)));
  const CollectivePlan slower = plan_collective(CollectiveKind::all_to_all, 1e9, all, hashed);
  CHECK(slower.seconds(1e9) > plan_collective(CollectiveKind::all_to_all, 1e9, even, cluster).seconds(1e9));
}
