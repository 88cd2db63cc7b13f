#include "topologies/network.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <cmath>
#include <map>
#include <set>

#include "base/error.h"
#include "base/random.h"
#include "tests/support/switched_cluster.h"
#include "topologies/readers/catalog.h"

using namespace orrery;

namespace {

std::vector<std::string> names(const Network& network, const Route& route) {
  std::vector<std::string> result;
  for (const Link& link : route.links) result.push_back(network.name_of(link.id));
  return result;
}

using Names = std::vector<std::string>;

}  // namespace

// gpu0 --100-- [NVSwitch] --100-- gpu3
TEST_CASE("inside an NVSwitch node a route is up one port and down another") {
  const Cluster cluster = test::switched_cluster(1, 4, 1);
  const Network network(cluster);
  const Route route = network.route(0, 3);
  CHECK(names(network, route) == Names{"node0.gpu0.up", "node0.gpu3.down"});
  CHECK(route.latency_s == Approx(1e-6));
  CHECK(route.bandwidth_bytes_per_s == 100e9);
  CHECK(route.switches == 0);
  CHECK(route.path == PathClass::nvlink);
}

TEST_CASE("a device reaches itself over no link, at half its memory's rate, at once") {
  const Cluster cluster = test::switched_cluster(2, 4, 1);
  const Route route = Network(cluster).route(2, 2);
  CHECK(route.links.empty());
  CHECK(route.latency_s == 0);
  CHECK(route.bandwidth_bytes_per_s == 0.5e12);
  CHECK(route.path == PathClass::self);
}

// DGX-1: 0-3 has two links, 0-5 none but 0-1 (1), 1-5 (2); 0-4 (2), 4-5 (1); 0-2, 2-5 none; 0-3 (2), 3-5
// none. Via 1: min(1, 2) = 1; via 4: min(2, 1) = 1: the lowest, 1, wins. Six links share 150 GB/s.
TEST_CASE("a mesh takes the direct bundle, else the widest two hops, the lowest on ties") {
  const Cluster cluster = load_cluster("dgx-v100");
  const Network network(cluster);
  const Route direct = network.route(0, 3);
  CHECK(names(network, direct) == Names{"node0.nvlink0-3"});
  CHECK(direct.bandwidth_bytes_per_s == Approx(50e9));
  CHECK(direct.latency_s == Approx(1e-6));
  CHECK(network.route(0, 1).bandwidth_bytes_per_s == Approx(25e9));
  const Route two = network.route(0, 5);
  CHECK(names(network, two) == Names{"node0.nvlink0-1", "node0.nvlink1-5"});
  CHECK(two.bandwidth_bytes_per_s == Approx(25e9));
  CHECK(two.latency_s == Approx(2e-6));
  CHECK(two.path == PathClass::nvlink);
}

// 0 == 1    2 == 3: no two links join 0 and 2, so they meet in the host.
TEST_CASE("a mesh in two parts goes through the host") {
  Cluster cluster = test::switched_cluster(1, 4, 1);
  IntraNode& intra = cluster.groups[0].node.intra;
  intra.kind = IntraKind::nvlink_mesh;
  intra.mesh_links = {0, 4, 0, 0, 4, 0, 0, 0, 0, 0, 0, 4, 0, 0, 4, 0};
  const Network network(cluster);
  const Route route = network.route(0, 2);
  CHECK(names(network, route) == Names{"node0.gpu0.pcie.up", "node0.gpu2.pcie.down"});
  CHECK(route.path == PathClass::pcie);
  CHECK(network.path_class(0, 1) == PathClass::nvlink);
}

//   gpu0 gpu1   gpu2 gpu3         nic0
//      \ /         \ /             |
//    bridge0 ---- bridge1     bridge0
TEST_CASE("PCIe crosses the processors' interconnect only between bridges") {
  Cluster cluster = test::switched_cluster(2, 4, 1);
  IntraNode& intra = cluster.groups[0].node.intra;
  intra = {.kind = IntraKind::pcie,
           .bandwidth_bytes_per_s = 24e9,
           .latency_s = 2e-6,
           .devices_per_bridge = 2,
           .bridge_bandwidth_bytes_per_s = 16e9};
  const Network network(cluster);
  const Route near = network.route(0, 1);
  CHECK(names(network, near) == Names{"node0.gpu0.pcie.up", "node0.gpu1.pcie.down"});
  CHECK(near.bandwidth_bytes_per_s == 24e9);
  CHECK(near.latency_s == Approx(2e-6));
  const Route far = network.route(0, 2);
  CHECK(names(network, far) ==
        Names{"node0.gpu0.pcie.up", "node0.bridge0.up", "node0.bridge1.down", "node0.gpu2.pcie.down"});
  CHECK(far.bandwidth_bytes_per_s == 16e9);
  CHECK(far.latency_s == Approx(4e-6));
  CHECK(far.path == PathClass::pcie);
  // The port hangs on the bridge of the first device that uses it: device 3 crosses, device 0 does not.
  CHECK(names(network, network.route(0, 4)) ==
        Names{"node0.gpu0.pcie.up", "node0.nic0.up", "node1.nic0.down", "node1.gpu0.pcie.down"});
  CHECK(names(network, network.route(3, 4)) == Names{"node0.gpu3.pcie.up", "node0.bridge1.up",
                                                     "node0.bridge0.down", "node0.nic0.up", "node1.nic0.down",
                                                     "node1.gpu0.pcie.down"});
}

// rank0 --5-- (memory: 4 cores x 5 = 20) --5-- rank1
TEST_CASE("ranks of a host share its memory") {
  Cluster cluster = test::switched_cluster(1, 8, 0);
  cluster.profiles[0].kind = DeviceKind::cpu;
  NodeType& node = cluster.groups[0].node;
  node.nic = {};
  node.intra = {.kind = IntraKind::shared_memory, .bandwidth_bytes_per_s = 5e9, .latency_s = 1e-6};
  node.shared_cores = 4;
  const Network network(cluster);
  const Route route = network.route(0, 1);
  CHECK(names(network, route) == Names{"node0.rank0.up", "node0.memory", "node0.rank1.down"});
  CHECK(route.bandwidth_bytes_per_s == 5e9);
  CHECK(route.links[1].bandwidth_bytes_per_s == 20e9);
  CHECK(route.latency_s == Approx(1e-6));
  CHECK(route.path == PathClass::shared_memory);
  node.intra.bridge_bandwidth_bytes_per_s = 12e9;
  CHECK(network.route(0, 1).links[1].bandwidth_bytes_per_s == 12e9);
}

// node0.nic0 --10--\            /--10-- node2.nic0
//                   [ switch ]
TEST_CASE("a star crosses one switch, and ranks without a PCIe figure have no PCIe link") {
  Cluster cluster = test::switched_cluster(3, 2, 1);
  const Network network(cluster);
  const Route route = network.route(1, 4);
  CHECK(names(network, route) ==
        Names{"node0.gpu1.pcie.up", "node0.nic0.up", "node2.nic0.down", "node2.gpu0.pcie.down"});
  CHECK(route.switches == 1);
  CHECK(route.latency_s == Approx(2 * 0.5e-6 + 0.1e-6));
  CHECK(route.bandwidth_bytes_per_s == 10e9);
  CHECK(route.path == PathClass::network);
  cluster.groups[0].node.nic.pcie_bandwidth_bytes_per_s = 0;
  CHECK(names(network, network.route(1, 4)) == Names{"node0.nic0.up", "node2.nic0.down"});
}

TEST_CASE("a star's own capacity is one link that all traffic shares") {
  Cluster cluster = test::switched_cluster(3, 1, 1);
  cluster.fabric.link_bandwidth_bytes_per_s = 15e9;
  const Network network(cluster);
  const Route there = network.route(0, 1);
  const Route back = network.route(2, 0);
  CHECK(network.name_of(there.links[2].id) == "switch.backbone");
  CHECK(there.links[2].id == back.links[2].id);
  CHECK(there.links[2].bandwidth_bytes_per_s == 15e9);
}

//            [        spine        ]
//          40/4 |             | 40/4          leaf: 2 nodes x 2 ports x 10 GB/s = 40, oversubscribed 4 to 1
//          [leaf0]           [leaf1]
//          /     \           /     \   .
//       node0   node1     node2   node3
TEST_CASE("a fat tree crosses one switch within a leaf, three and the aggregated uplinks beyond") {
  Cluster cluster = test::switched_cluster(5, 2, 2);
  cluster.fabric.kind = FabricKind::fat_tree;
  cluster.fabric.nodes_per_leaf = 2;
  cluster.fabric.oversubscription = 4;
  const Network network(cluster);
  const Route near = network.route(0, 2);
  CHECK(near.switches == 1);
  CHECK(names(network, near) ==
        Names{"node0.gpu0.pcie.up", "node0.nic0.up", "node1.nic0.down", "node1.gpu0.pcie.down"});
  const Route far = network.route(1, 5);
  CHECK(names(network, far) == Names{"node0.gpu1.pcie.up", "node0.nic1.up", "leaf0.uplink.up",
                                     "leaf1.uplink.down", "node2.nic1.down", "node2.gpu1.pcie.down"});
  CHECK(far.switches == 3);
  CHECK(far.links[2].bandwidth_bytes_per_s == 10e9);
  CHECK(far.latency_s == Approx(2 * 0.5e-6 + 3 * 0.1e-6));
  // node4 is alone on leaf2, whose switch has the uplinks of a full one.
  CHECK(network.route(0, 8).links[3].bandwidth_bytes_per_s == 10e9);
}

//   pod 0:  leaf0 has port 0 of nodes 0 and 1, leaf1 has port 1 of both;  pod 1: nodes 2 and 3
TEST_CASE("a rail fat tree keeps a rail on its leaf and changes rails over NVLink first") {
  Cluster cluster = test::switched_cluster(4, 2, 2);
  cluster.fabric.kind = FabricKind::rail_fat_tree;
  cluster.fabric.nodes_per_leaf = 2;
  const Network network(cluster);
  const Route rail = network.route(0, 2);  // gpu0 -> gpu0 of node1
  CHECK(rail.switches == 1);
  CHECK(names(network, rail) ==
        Names{"node0.gpu0.pcie.up", "node0.nic0.up", "node1.nic0.down", "node1.gpu0.pcie.down"});
  const Route cross = network.route(0, 3);  // gpu0 -> gpu1 of node1: by gpu1 of node0 (PXN)
  CHECK(cross.switches == 1);
  CHECK(names(network, cross) == Names{"node0.gpu0.up", "node0.gpu1.down", "node0.gpu1.pcie.up",
                                       "node0.nic1.up", "node1.nic1.down", "node1.gpu1.pcie.down"});
  CHECK(cross.latency_s == Approx(1e-6 + 2 * 0.5e-6 + 0.1e-6));
  const Route pods = network.route(0, 4);
  CHECK(pods.switches == 3);
  CHECK(names(network, pods) == Names{"node0.gpu0.pcie.up", "node0.nic0.up", "pod0.leaf0.uplink.up",
                                      "pod1.leaf0.uplink.down", "node2.nic0.down", "node2.gpu0.pcie.down"});
  CHECK(pods.links[2].bandwidth_bytes_per_s == 20e9);  // 2 nodes x 10 GB/s of this rail
}

TEST_CASE("without NVLink, or when the other rail's port is dead, rails meet in the spine") {
  Cluster cluster = test::switched_cluster(2, 2, 2);
  cluster.fabric.kind = FabricKind::rail_fat_tree;
  cluster.fabric.nodes_per_leaf = 2;
  const Names by_spine = {"node0.gpu0.pcie.up",     "node0.nic0.up",   "pod0.leaf0.uplink.up",
                          "pod0.leaf1.uplink.down", "node1.nic1.down", "node1.gpu1.pcie.down"};
  SECTION("a dead port 1 in the source") {
    cluster.overrides.push_back({.node = 0, .port = 1, .target = OverrideTarget::nic, .speed = 0});
    const Network network(cluster);
    CHECK(names(network, network.route(0, 3)) == by_spine);
  }
  SECTION("PCIe only") {
    cluster.groups[0].node.intra.kind = IntraKind::pcie;
    cluster.groups[0].node.intra.devices_per_bridge = 2;
    const Network network(cluster);
    CHECK(names(network, network.route(0, 3)) == by_spine);
  }
}

TEST_CASE("the devices of one port change rails by different neighbours") {
  Cluster cluster = test::switched_cluster(2, 4, 2);  // devices 0, 1 on port 0; 2, 3 on port 1
  cluster.fabric.kind = FabricKind::rail_fat_tree;
  cluster.fabric.nodes_per_leaf = 2;
  const Network network(cluster);
  CHECK(names(network, network.route(0, 6))[1] == "node0.gpu2.down");
  CHECK(names(network, network.route(1, 6))[1] == "node0.gpu3.down");
}

//  0 - 1 - 2 -(0)     rows of 3, 2 rows: node = 3 * row + column
//  |   |   |
//  3 - 4 - 5 -(3)
TEST_CASE("a torus goes dimension by dimension, the shorter way round") {
  Cluster cluster = test::switched_cluster(6, 1, 1);
  cluster.fabric.kind = FabricKind::torus;
  cluster.fabric.torus = {2, 3};
  cluster.fabric.link_bandwidth_bytes_per_s = 7e9;
  const Network network(cluster);
  // 0 -> 5: row 0 to 1 (a tie: upwards), then column 0 to 2 backwards round the ring.
  const Route route = network.route(0, 5);
  CHECK(names(network, route) == Names{"node0.gpu0.pcie.up", "node0.nic0.up", "node0.torus0.plus",
                                       "node3.torus1.minus", "node5.nic0.down", "node5.gpu0.pcie.down"});
  CHECK(route.switches == 2);
  CHECK(route.bandwidth_bytes_per_s == 7e9);
  CHECK(route.latency_s == Approx(2 * 0.5e-6 + 2 * 0.1e-6));
  CHECK(network.ends_of(route.links[3].id).to == "node5.router");
  cluster.fabric.link_bandwidth_bytes_per_s = 0;  // as the node's ports together
  CHECK(network.route(0, 5).links[2].bandwidth_bytes_per_s == 10e9);
}

// 3 groups of 2 routers of 1 node. Group g's link to h is at router ((h - g - 1) mod 3) mod 2:
// 0->1 at router 0, 0->2 at router 1; 1->0 at router 1 (2 mod... (0-1-1) mod 3 = 1), 1->2 at 0; 2->0 at 0,
// 2->1 at 1.
TEST_CASE("a dragonfly takes at most local, global, local") {
  Cluster cluster = test::switched_cluster(6, 1, 1);
  cluster.fabric.kind = FabricKind::dragonfly;
  cluster.fabric.groups = 3;
  cluster.fabric.routers = 2;
  cluster.fabric.nodes_per_router = 1;
  cluster.fabric.global_bandwidth_bytes_per_s = 4e9;
  const Network network(cluster);
  const Route route = network.route(1, 2);  // group 0 router 1 -> group 1 router 0
  CHECK(names(network, route) == Names{"node1.gpu0.pcie.up", "node1.nic0.up", "group0.router1-0", "group0-1",
                                       "group1.router1-0", "node2.nic0.down", "node2.gpu0.pcie.down"});
  CHECK(route.switches == 4);
  CHECK(route.bandwidth_bytes_per_s == 4e9);
  CHECK(network.route(0, 1).switches == 2);
  CHECK(network.route(0, 3).switches == 2);  // both gateways are the nodes' own routers
}

TEST_CASE("a slow port is slow, a dead one is left for the next live one, and none alive is no answer") {
  Cluster cluster = test::switched_cluster(2, 2, 2);
  cluster.overrides.push_back({.node = 1, .port = 0, .target = OverrideTarget::nic, .speed = 0.25});
  {
    const Network network(cluster);
    CHECK(network.route(0, 2).bandwidth_bytes_per_s == 2.5e9);
    CHECK(network.route(1, 3).bandwidth_bytes_per_s == 10e9);
  }
  cluster.overrides[0].speed = 0;
  {
    const Network network(cluster);
    CHECK(network.port_of(2) == 1);
    CHECK(names(network, network.route(0, 2))[2] == "node1.nic1.down");
  }
  cluster.overrides.push_back({.node = 1, .port = 1, .target = OverrideTarget::nic, .speed = 0});
  const Network network(cluster);
  CHECK_THROWS_WITH(network.route(0, 3),
                    Catch::Contains("device 0 to device 3") && Catch::Contains("node 1"));
  CHECK_THROWS_AS(network.route(2, 0), NoAnswer);
  CHECK_THROWS_AS(network.port_of(3), NoAnswer);
  CHECK(network.route(2, 3).path == PathClass::nvlink);  // inside the node nothing is lost
}

namespace {

Cluster random_cluster(std::uint64_t seed) {
  const CounterRandom random(seed, 7);
  std::uint64_t drawn = 0;
  const auto from = [&](int low, int high) {
    return low + static_cast<int>(random.bits(drawn++) % static_cast<std::uint64_t>(high - low + 1));
  };
  const int devices = from(1, 8);
  Cluster cluster = test::switched_cluster(1, devices, from(1, 4));
  NodeType& node = cluster.groups[0].node;
  node.intra.bandwidth_bytes_per_s = from(1, 1000) * 1e9;
  switch (from(0, 3)) {
    case 0:
      node.intra.kind = IntraKind::pcie;
      node.intra.devices_per_bridge = from(1, devices);
      node.intra.bridge_bandwidth_bytes_per_s = from(1, 30) * 1e9;
      break;
    case 1:
      node.intra.kind = IntraKind::shared_memory;
      node.shared_cores = from(0, 4);
      break;
    case 2:
      node.intra.kind = IntraKind::nvlink_mesh;
      node.intra.mesh_links.assign(static_cast<std::size_t>(devices) * devices, 0);
      for (int a = 0; a < devices; ++a) {
        for (int b = 0; b < a; ++b) {
          const int links = from(0, 2);
          node.intra.mesh_links[a * devices + b] = node.intra.mesh_links[b * devices + a] = links;
        }
      }
      break;
    default:
      break;
  }
  cluster.fabric.oversubscription = from(1, 4);
  cluster.fabric.nodes_per_leaf = from(1, 5);
  cluster.fabric.global_bandwidth_bytes_per_s = from(1, 30) * 1e9;
  cluster.fabric.kind = static_cast<FabricKind>(from(0, 4));
  cluster.fabric.torus = std::vector<int>(static_cast<std::size_t>(from(1, 3)), 1);
  cluster.fabric.routers = from(1, 4);
  cluster.fabric.nodes_per_router = from(1, 3);
  return with_nodes(cluster, from(1, 30));
}

}  // namespace

TEST_CASE("laws of routes on random clusters") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    const Cluster cluster = random_cluster(seed);
    const Network network(cluster);
    const std::vector<LinkId> every = network.all_links();
    const std::set<LinkId> links(every.begin(), every.end());
    CHECK(links.size() == every.size());
    std::set<std::string> link_names;
    for (const LinkId id : every) CHECK(link_names.insert(network.name_of(id)).second);
    const CounterRandom random(seed, 8);
    for (std::uint64_t i = 0; i < 20; ++i) {
      const auto n = static_cast<std::uint64_t>(cluster.devices());
      const int a = static_cast<int>(random.bits(2 * i) % n);
      const int b = static_cast<int>(random.bits(2 * i + 1) % n);
      CAPTURE(a, b);
      const Route route = network.route(a, b);
      CHECK(route.path == network.path_class(a, b));
      CHECK(std::isfinite(route.latency_s));
      CHECK(route.latency_s >= 0);
      CHECK(std::isfinite(route.bandwidth_bytes_per_s));
      CHECK(route.bandwidth_bytes_per_s > 0);
      double narrowest = INFINITY;
      double latency = route.switches * cluster.fabric.switch_latency_s;
      std::set<LinkId> seen;
      for (const Link& link : route.links) {
        narrowest = std::min(narrowest, link.bandwidth_bytes_per_s);
        latency += link.latency_s;
        CHECK(links.count(link.id) == 1);
        CHECK(seen.insert(link.id).second);  // no loops
      }
      if (a != b) CHECK(route.bandwidth_bytes_per_s == narrowest);
      CHECK(route.latency_s == Approx(latency).margin(1e-15));
      // The way back is as long and as wide, but where a mesh changes rails: that takes one hop or two.
      const bool rails_of_mesh = cluster.fabric.kind == FabricKind::rail_fat_tree &&
                                 cluster.groups[0].node.intra.kind == IntraKind::nvlink_mesh;
      if (rails_of_mesh) continue;
      const Route back = network.route(b, a);
      CHECK(back.links.size() == route.links.size());
      CHECK(back.switches == route.switches);
      CHECK(back.bandwidth_bytes_per_s == route.bandwidth_bytes_per_s);
    }
  }
}

TEST_CASE("a route in a cluster of 100,000 devices is found at once") {
  for (const char* name : {"dgx-h100", "a100-eth100"}) {
    const Cluster cluster = with_devices(load_cluster(name), 100'000);
    const Network network(cluster);
    const auto start = std::chrono::steady_clock::now();
    double sum = 0;
    for (int i = 0; i < 1000; ++i) sum += network.route(i * 97, 99'999 - i).latency_s;
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    CHECK(std::isfinite(sum));
    CHECK(seconds < 0.5);  // measured 1 ms; the bound only tells an O(devices) walk from an O(hops) one
  }
}

TEST_CASE("nodes of unlike types share a leaf, and its uplinks count each node's own ports") {
  Cluster cluster = test::switched_cluster(1, 2, 2);
  NodeGroup second = cluster.groups[0];
  second.node.nic.count = 1;
  second.node.nic.bandwidth_bytes_per_s = 40e9;
  second.node.nic.of_device = {0, 0};
  cluster.groups.push_back(second);
  cluster.groups.push_back(second);
  cluster.fabric.kind = FabricKind::fat_tree;
  cluster.fabric.nodes_per_leaf = 2;
  const Network network(cluster);
  const Route route = network.route(0, 4);  // leaf0: 2 x 10 + 40 = 60; leaf1: 40, scaled to two nodes: 80
  CHECK(route.links[2].bandwidth_bytes_per_s == 60e9);
  CHECK(route.links[3].bandwidth_bytes_per_s == 80e9);
}
