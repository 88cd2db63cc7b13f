#include "sim/zones/zone_platform.h"

#include <catch2/catch.hpp>
#include <cstring>

#include "base/error.h"
#include "sim/network/flow_system.h"
#include "sim/network/platform.h"
#include "sim/processes/isolate.h"
#include "tests/support/switched_cluster.h"
#include "topologies/network.h"
#include "topologies/readers/catalog.h"

using namespace orrery;
using sim::ZonePlatform;
using sim::ZoneTransfer;

namespace {

Cluster fat_tree(int nodes, int per_leaf, double oversubscription) {
  Cluster cluster = test::switched_cluster(nodes, 2, 2);
  cluster.fabric.kind = FabricKind::fat_tree;
  cluster.fabric.nodes_per_leaf = per_leaf;
  cluster.fabric.oversubscription = oversubscription;
  return cluster;
}

Cluster dragonfly(int groups, int routers, double local, double global) {
  Cluster cluster = test::switched_cluster(groups * routers * 2, 2, 1);
  cluster.fabric.kind = FabricKind::dragonfly;
  cluster.fabric.groups = groups;
  cluster.fabric.routers = routers;
  cluster.fabric.nodes_per_router = 2;
  cluster.fabric.link_bandwidth_bytes_per_s = local;
  cluster.fabric.global_bandwidth_bytes_per_s = global;
  return cluster;
}

std::vector<double> unpack(const std::string& bytes) {
  std::vector<double> values(bytes.size() / sizeof(double));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

std::string pack(const std::vector<double>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double)};
}

std::vector<double> in_zones(const Cluster& cluster, const std::vector<ZoneTransfer>& transfers) {
  return unpack(sim::run_isolated([&] { return pack(ZonePlatform(cluster).run(transfers)); }));
}

// What the simulator's own sharing says: latencies first, then max-min over the links of the routes.
std::vector<double> in_flows(const Cluster& cluster, const std::vector<ZoneTransfer>& transfers) {
  const Network network(cluster);
  return unpack(sim::run_isolated([&] {
    sim::FlowSystem flows;
    std::vector<int> flow_of;
    std::vector<double> latency;
    for (const ZoneTransfer& transfer : transfers) {
      const Route route = network.route(transfer.source, transfer.destination);
      std::vector<sim::LinkWeight> loads;
      for (const Link& link : route.links) {
        const int index = flows.add_link(link.id).first;
        flows.set_capacity(index, link.bandwidth_bytes_per_s);
        loads.push_back({index, 1, 1});
      }
      flow_of.push_back(flows.add_flow(flows.add_pattern(loads, sim::kNoQueue), route.bandwidth_bytes_per_s));
      latency.push_back(route.latency_s);
    }
    flows.reduce(/*keep_all=*/true);
    const std::unique_ptr<sim::Platform> platform = sim::make_platform(flows);
    std::vector<double> ends(transfers.size(), 0);
    bool started = false;
    platform->wake_at(0);
    platform->run(
        [&] {
          if (started) return;
          started = true;
          for (std::size_t i = 0; i < transfers.size(); ++i)
            platform->start(flow_of[i], transfers[i].bytes, static_cast<int>(i));
        },
        [&](const std::vector<int>& done) {
          for (const int i : done)
            ends[static_cast<std::size_t>(i)] = platform->now_s() + latency[static_cast<std::size_t>(i)];
        });
    return pack(ends);
  }));
}

// From the first device, from one in the middle and from the last to every `stride`-th.
void check_lone_transfers(const Cluster& cluster) {
  const Network network(cluster);
  const int devices = cluster.devices();
  const double bytes = 20e6;
  std::vector<std::pair<int, int>> pairs;
  for (const int source : {0, devices / 2, devices - 1})
    for (int to = 0; to < devices; to += std::max(1, devices / 16))
      if (to != source) pairs.emplace_back(source, to);
  const auto routes = unpack(sim::run_isolated([&] {
    const ZonePlatform platform(cluster);
    std::vector<double> values{static_cast<double>(platform.hosts())};
    for (const auto& [source, to] : pairs) {
      const auto route = platform.route(source, to);
      values.push_back(route.latency_s);
      values.push_back(route.bandwidth_bytes_per_s);
    }
    return pack(values);
  }));
  CHECK(routes[0] == devices);
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const auto [source, to] = pairs[i];
    INFO("device " << source << " to " << to);
    const Route truth = network.route(source, to);
    CHECK(routes[1 + 2 * i] == Approx(truth.latency_s).margin(1e-15).epsilon(1e-9));
    CHECK(routes[2 + 2 * i] == Approx(truth.bandwidth_bytes_per_s).epsilon(1e-9));
  }
  const auto [source, to] = pairs[pairs.size() / 2];
  const Route truth = network.route(source, to);
  CHECK(in_zones(cluster, {{source, to, bytes}})[0] ==
        Approx(truth.latency_s + bytes / truth.bandwidth_bytes_per_s).epsilon(0.01));
}

// Transfers of equal latency: SimGrid shares by round-trip time.
void check_contention(const Cluster& cluster, const std::vector<ZoneTransfer>& transfers) {
  const auto zones = in_zones(cluster, transfers);
  const auto flows = in_flows(cluster, transfers);
  for (std::size_t i = 0; i < transfers.size(); ++i) {
    INFO("transfer " << i);
    CHECK(zones[i] == Approx(flows[i]).epsilon(0.02));
  }
}

}  // namespace

TEST_CASE("zones: one node of any kind has the simulator's routes") {
  check_lone_transfers(test::switched_cluster(1, 4, 1));
  for (const char* name : {"dgx-a100", "dgx-v100", "pcie-4090"}) {
    INFO(name);
    check_lone_transfers(with_nodes(load_cluster(name), 1));
  }
}

TEST_CASE("zones: ranks of a host share its memory") {
  Cluster cluster = test::switched_cluster(1, 8, 0);
  cluster.profiles[0].kind = DeviceKind::cpu;
  NodeType& node = cluster.groups[0].node;
  node.nic = {};
  node.intra = {.kind = IntraKind::shared_memory, .bandwidth_bytes_per_s = 5e9, .latency_s = 1e-6};
  node.shared_cores = 2;
  check_lone_transfers(cluster);
  check_contention(cluster, {{0, 1, 1e8}, {2, 3, 1e8}, {4, 5, 1e8}, {6, 7, 1e8}});
}

TEST_CASE("zones: a star, with and without a capacity of its own") {
  Cluster cluster = test::switched_cluster(5, 4, 2);
  check_lone_transfers(cluster);
  check_lone_transfers(with_nodes(load_cluster("pcie-4090"), 3));
  // Devices 0 and 1 share port 0; device 2 has port 1 to itself.
  check_contention(cluster, {{0, 4, 1e8}, {1, 8, 1e8}, {2, 12, 1e8}});
  CHECK(in_zones(cluster, {{0, 4, 1e8}, {1, 8, 1e8}})[0] == Approx(0.02).epsilon(0.01));
  cluster.fabric.link_bandwidth_bytes_per_s = 15e9;
  check_lone_transfers(cluster);
  check_contention(cluster, {{0, 4, 1e8}, {8, 12, 1e8}, {5, 16, 1e8}});
}

TEST_CASE("zones: opposite directions of a port do not share") {
  CHECK(in_zones(test::switched_cluster(2, 2, 1), {{0, 2, 1e8}, {2, 0, 1e8}})[0] ==
        Approx(0.01).epsilon(0.01));
}

TEST_CASE("zones: a dead port's devices use the next, a slow one is slow") {
  Cluster cluster = test::switched_cluster(3, 4, 2);
  cluster.overrides.push_back({.node = 0, .port = 0, .target = OverrideTarget::nic, .speed = 0});
  cluster.overrides.push_back({.node = 1, .port = 1, .target = OverrideTarget::nic, .speed = 0.5});
  check_lone_transfers(cluster);
  check_contention(cluster, {{0, 6, 1e8}, {3, 8, 1e8}});
  cluster.overrides.push_back({.node = 0, .port = 1, .target = OverrideTarget::nic, .speed = 0});
  CHECK_THROWS_AS(in_zones(cluster, {{0, 4, 1e6}}), NoAnswer);
}

// 4 nodes of 20 GB/s a leaf, 4:1: a leaf has 20 GB/s of uplinks.
TEST_CASE("zones: a fat tree, oversubscribed") {
  check_lone_transfers(fat_tree(8, 4, 1));
  check_lone_transfers(fat_tree(6, 4, 2));  // a leaf half full
  check_lone_transfers(fat_tree(3, 4, 1));  // one leaf
  const Cluster cluster = fat_tree(8, 4, 4);
  check_lone_transfers(cluster);
  std::vector<ZoneTransfer> all;
  for (int d = 0; d < 8; ++d) all.push_back({d, 8 + d, 1e8});
  check_contention(cluster, all);
  CHECK(in_zones(cluster, all)[0] == Approx(8 * 1e8 / 20e9).epsilon(0.01));
  CHECK_THROWS_AS(in_zones(fat_tree(8, 2, 4), {{0, 15, 1e6}}), UserError);
}

TEST_CASE("zones: rails, with the hop over NVLink to the destination's") {
  Cluster cluster = test::switched_cluster(6, 4, 4);
  cluster.fabric.kind = FabricKind::rail_fat_tree;
  cluster.fabric.nodes_per_leaf = 2;
  cluster.fabric.oversubscription = 2;
  check_lone_transfers(cluster);
  check_contention(cluster, {{8, 4, 1e8}, {12, 4, 1e8}, {9, 5, 1e8}});
  cluster = test::switched_cluster(257, 4, 4);
  cluster.fabric.kind = FabricKind::rail_fat_tree;
  cluster.fabric.nodes_per_leaf = 2;
  CHECK_THROWS_AS(in_zones(cluster, {{0, 4, 1e6}}), UserError);
}

TEST_CASE("zones: a torus of unlike dimensions") {
  Cluster cluster = test::switched_cluster(3 * 5 * 2, 2, 1);
  cluster.fabric.kind = FabricKind::torus;
  cluster.fabric.torus = {3, 1, 5, 2};
  check_lone_transfers(cluster);
  // Nodes 0 2 4 6 8 are a ring: 0 -> 2 -> 4 and 2 -> 4 -> 6 share a link.
  check_contention(cluster, {{0, 8, 1e8}, {4, 12, 1e8}, {9, 16, 1e8}});
  CHECK(in_zones(cluster, {{0, 8, 1e8}, {4, 12, 1e8}})[0] == Approx(0.02).epsilon(0.01));
}

TEST_CASE("zones: a dragonfly has our gateways") {
  check_lone_transfers(dragonfly(4, 5, 10e9, 20e9));
  check_lone_transfers(dragonfly(3, 3, 20e9, 10e9));
  check_lone_transfers(dragonfly(1, 3, 20e9, 10e9));
  const Cluster cluster = dragonfly(3, 4, 10e9, 10e9);
  check_lone_transfers(cluster);
  // Both nodes of a router to the other group: one global link.
  check_contention(cluster, {{0, 16, 1e8}, {2, 18, 1e8}, {4, 20, 1e8}});
  CHECK_THROWS_AS(in_zones(dragonfly(6, 4, 10e9, 10e9), {{0, 4, 1e6}}), UserError);
  CHECK_THROWS_AS(in_zones(dragonfly(3, 4, 10e9, 5e9), {{0, 4, 1e6}}), UserError);
}

TEST_CASE("zones: 128 nodes of 8 are built whole") {
  const Cluster cluster = with_nodes(load_cluster("dgx-a100"), 4);
  const Cluster tree = [] {
    Cluster wide = fat_tree(128, 16, 2);
    wide.groups[0].node = test::switched_cluster(128, 8, 8).groups[0].node;
    return wide;
  }();
  check_lone_transfers(cluster);
  check_lone_transfers(tree);
}
