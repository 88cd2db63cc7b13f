#include "topologies/cluster.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "base/error.h"
#include "proto/cluster.pb.h"
#include "proto/field_check.h"
#include "proto/plan.pb.h"
#include "proto/textproto.h"
#include "tests/support/fuzz.h"
#include "topologies/network.h"
#include "topologies/node_counts.h"
#include "topologies/readers/catalog.h"

using namespace orrery;

namespace {

// Line numbers matter: the tests below name them.
const std::string kSound = R"(name: "c"                       # 1
groups {                                                        # 2
  count: 4                                                      # 3
  node {                                                        # 4
    device: "mine"                                              # 5
    devices: 4                                                  # 6
    intra {                                                     # 7
      kind: PCIE                                                # 8
      bandwidth_bytes_per_s: 24e9                               # 9
      latency_s: 2e-6                                           # 10
      devices_per_bridge: 2                                     # 11
      bridge_bandwidth_bytes_per_s: 16e9                        # 12
    }                                                           # 13
    nic {                                                       # 14
      count: 2                                                  # 15
      bandwidth_bytes_per_s: 12.5e9                             # 16
      latency_s: 1e-6                                           # 17
      of_device: [0, 0, 1, 1]                                   # 18
      pcie_bandwidth_bytes_per_s: 24e9                          # 19
    }                                                           # 20
    host_memory_bytes: 1e12                                     # 21
    price_usd_per_device_hour: 2                                # 22
    hosts: ["a", "b", "c", "d"]                                 # 23
  }                                                             # 24
}                                                               # 25
fabric {                                                        # 26
  kind: FAT_TREE                                                # 27
  transport: ROCE                                               # 28
  switch_latency_s: 3e-7                                        # 29
  nodes_per_leaf: 2                                             # 30
  oversubscription: 2                                           # 31
}                                                               # 32
communication {                                                 # 33
  library: "nccl"                                               # 34
  network_efficiency: 0.9                                       # 35
}                                                               # 36
overrides { node: 1 device: 3 target: "device" speed: 0.5 }     # 37
overrides { node: 2 port: 1 target: "nic" speed: 0 }            # 38
devices {                                                       # 39
  name: "mine"                                                  # 40
  peak { dtype: "fp32" flops_per_s: 1e12 }                      # 41
  memory_bytes: 1e10                                            # 42
  memory_bandwidth_bytes_per_s: 1e11                            # 43
  price_usd_per_hour: 3                                         # 44
}                                                               # 45
)";

Cluster read(const std::string& text) {
  proto::Cluster message;
  parse_textproto(text, "c.textproto", &message);
  return cluster_from_proto(message, "c.textproto", text);
}

std::string text_of(const Cluster& cluster) {
  proto::Cluster message;
  to_proto(cluster, &message);
  return to_textproto(message);
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

struct Fault {
  std::string from;
  std::string to;
  int line;
  std::string what;
};

}  // namespace

TEST_CASE("a sound cluster reads as written, with its defaults filled in") {
  const Cluster cluster = read(kSound);
  CHECK(cluster.nodes() == 4);
  CHECK(cluster.devices() == 16);
  CHECK(cluster.profile_of(15).name == "mine");
  CHECK(cluster.place(7).node == 1);
  CHECK(cluster.place(7).local == 3);
  CHECK(cluster.first_device(2) == 8);
  CHECK(cluster.device_speed(7) == 0.5);
  CHECK(cluster.device_speed(6) == 1);
  CHECK(cluster.nic_speed(2, 1) == 0);
  CHECK(cluster.nic_speed(2, 0) == 1);
  CHECK(cluster.communication.network_efficiency == 0.9);
  CHECK(cluster.communication.intra_efficiency == 0.8);
  CHECK(cluster.groups[0].node.price_usd_per_device_hour == 2);
  CHECK(read(replaced(kSound, "price_usd_per_device_hour: 2", "")).groups[0].node.price_usd_per_device_hour ==
        3);
  CHECK(read(replaced(kSound, "of_device: [0, 0, 1, 1]", "")).groups[0].node.nic.of_device ==
        std::vector<int>{0, 0, 1, 1});
}

TEST_CASE("a cluster survives the way through its file unchanged") {
  const Cluster cluster = read(kSound);
  const std::string once = text_of(cluster);
  CHECK(text_of(read(once)) == once);
}

TEST_CASE("every bad figure is refused with its file and line") {
  const std::vector<Fault> faults = {
      {"name: \"c\"", "name: \"\"", 1, "name is missing"},
      {"count: 4 ", "count: 0 ", 3, "groups[0].count is 0"},
      {"count: 4 ", "count: -4 ", 3, "count is -4"},
      {"count: 4 ", "count: 5000000 ", 3, "count is 5000000"},
      {"\"mine\"     ", "\"a100-sxm\" ", 5, "did you mean 'a100-sxm-"},
      {"\"mine\"     ", "\"\" ", 5, "device is missing"},
      {"devices: 4 ", "devices: 0 ", 6, "devices is 0"},
      {"kind: PCIE", "", 7, "how the devices of a node are joined"},
      {"bandwidth_bytes_per_s: 24e9", "bandwidth_bytes_per_s: -24e9", 9,
       "bandwidth_bytes_per_s is -24000000000"},
      {"bandwidth_bytes_per_s: 24e9", "bandwidth_bytes_per_s: 24", 9, "bandwidth_bytes_per_s is 24"},
      {"latency_s: 2e-6", "latency_s: 1e308", 10, "latency_s is 1e+308"},
      {"bandwidth_bytes_per_s: 12.5e9", "bandwidth_bytes_per_s: 100", 16, "bandwidth_bytes_per_s is 100"},
      {"bandwidth_bytes_per_s: 24e9", "bandwidth_bytes_per_s: 25", 9, "did you mean 25e9?"},
      {"bandwidth_bytes_per_s: 24e9", "bandwidth_bytes_per_s: 1e-308", 9, "expected a number from 1e-30"},
      {"bandwidth_bytes_per_s: 24e9", "bandwidth_bytes_per_s: 1e308", 9,
       "expected a number from 1e-30 to 1e+30"},
      {"bandwidth_bytes_per_s: 24e9", "bandwidth_bytes_per_s: 1e25", 9, "from 1000000 to 1e+21 bytes/s"},
      {"latency_s: 2e-6", "latency_s: 1e-308", 10, "expected zero, or a number from 1e-30"},
      {"bandwidth_bytes_per_s: 24e9", "bandwidth_bytes_per_s: nan", 9, "is nan"},
      {"bandwidth_bytes_per_s: 24e9", "bandwidth_bytes_per_s: inf", 9, "is inf"},
      {"latency_s: 2e-6", "latency_s: -1", 10, "latency_s is -1"},
      {"devices_per_bridge: 2", "devices_per_bridge: 5", 11, "from 1 to 4"},
      {"bridge_bandwidth_bytes_per_s: 16e9", "bridge_bandwidth_bytes_per_s: 0", 12, "is 0"},
      {"kind: PCIE ", "kind: NVSWITCH ", 11, "belongs to kind PCIE"},
      {"latency_s: 2e-6", "mesh_links: [1]", 10, "belongs to kind NVLINK_MESH"},
      {"latency_s: 2e-6", "torus: [1]", 10, "belongs to kind TORUS"},
      {"latency_s: 2e-6", "in_network_reduction: true", 10, "only an NVSwitch"},
      {"count: 2 ", "count: -1 ", 15, "nic.count is -1"},
      {"count: 2 ", "count: 0 ", 18, "the node has no ports"},
      {"bandwidth_bytes_per_s: 12.5e9", "bandwidth_bytes_per_s: 0", 16, "is 0"},
      {"latency_s: 1e-6", "latency_s: inf", 17, "is inf"},
      {"[0, 0, 1, 1]", "[0, 0, 1]", 18, "of_device has 3 entries"},
      {"[0, 0, 1, 1]", "[0, 0, 1, 2]", 18, "port 2"},
      {"[0, 0, 1, 1]", "[0, 0, 1, -1]", 18, "port -1"},
      {"host_memory_bytes: 1e12", "host_memory_bytes: -1", 21, "host_memory_bytes is -1"},
      {"host_memory_bytes: 1e12", "storage_read_bytes_per_s: nan", 21, "is nan"},
      {"host_memory_bytes: 1e12", "storage_write_bytes_per_s: -2", 21, "is -2"},
      {"host_memory_bytes: 1e12", "shared_cores: -1", 21, "shared_cores is -1"},
      {"host_memory_bytes: 1e12", "host_power_w: -5", 21, "host_power_w is -5"},
      {"price_usd_per_device_hour: 2", "price_usd_per_device_hour: -2", 22, "is -2"},
      {", \"d\"]", "]", 23, "3 host names for 4 nodes"},
      {"kind: FAT_TREE", "", 26, "not connected"},
      {"transport: ROCE", "", 26, "transport is not said"},
      {"transport: ROCE", "transport: HOST", 28, "one host"},
      {"switch_latency_s: 3e-7", "switch_latency_s: -3e-7", 29, "switch_latency_s is"},
      {"nodes_per_leaf: 2", "nodes_per_leaf: 0", 30, "nodes_per_leaf is 0"},
      {"nodes_per_leaf: 2", "", 26, "nodes_per_leaf is 0"},
      {"oversubscription: 2", "oversubscription: -2", 31, "oversubscription is -2"},
      {"oversubscription: 2", "oversubscription: nan", 31, "is nan"},
      {"oversubscription: 2", "link_bandwidth_bytes_per_s: -1", 31, "is -1"},
      {"oversubscription: 2", "global_bandwidth_bytes_per_s: inf", 31, "is inf"},
      {"kind: FAT_TREE", "kind: TORUS", 26, "a torus of 0 dimensions"},
      {"kind: FAT_TREE", "kind: TORUS torus: [2, 3]", 27, "6 places for 4 nodes"},
      {"kind: FAT_TREE", "kind: TORUS torus: [2, 0]", 27, "torus is 0"},
      {"kind: FAT_TREE", "kind: DRAGONFLY", 26, "fabric.groups is 0"},
      {"kind: FAT_TREE", "kind: DRAGONFLY groups: 2 routers: 1 nodes_per_router: 1", 27, "for 4 nodes"},
      {"kind: FAT_TREE", "kind: DRAGONFLY groups: 3 routers: 2 nodes_per_router: 1", 27, "no empty group"},
      {"kind: FAT_TREE", "kind: DRAGONFLY groups: 2 routers: 2 nodes_per_router: 1", 26, "global_bandwidth"},
      {"library: \"nccl\"", "library: \"gloo\"", 34, "unknown communication library 'gloo'"},
      {"network_efficiency: 0.9", "network_efficiency: 1.5", 35, "network_efficiency is 1.5"},
      {"network_efficiency: 0.9", "intra_efficiency: -0.5", 35, "is -0.5"},
      {"network_efficiency: 0.9", "eager_bytes: -1", 35, "eager_bytes is -1"},
      {"network_efficiency: 0.9", "network_latency_s: nan", 35, "is nan"},
      {"node: 1 device: 3", "node: 4 device: 3", 37, "overrides[0].node is 4"},
      {"node: 1 device: 3", "node: 1 device: 4", 37, "overrides[0].device is 4"},
      {"speed: 0.5", "speed: 0", 37, "leave a dead device"},
      {"speed: 0.5", "speed: 1e-308", 37, "expected a fraction from 1e-06 to 1"},
      {"speed: 0.5", "speed: 1.5", 37, "speed is 1.5"},
      {"speed: 0.5", "speed: nan", 37, "speed is nan"},
      {"target: \"device\"", "target: \"gpu\"", 37, "unknown target 'gpu'"},
      {"target: \"device\"", "target: \"node\"", 37, "the target is another"},
      {"port: 1 target", "port: 2 target", 38, "overrides[1].port is 2"},
      {"speed: 0 }", "speed: -1 }", 38, "speed is -1"},
      {"node: 2 port: 1 target: \"nic\" speed: 0 ", "node: 1 device: 3 target: \"device\" speed: 1 ", 38,
       "one thing"},
      {"name: \"mine\"", "name: \"\"", 40, "devices[0].name is missing"},
      {"flops_per_s: 1e12", "flops_per_s: 0", 41, "devices[0].peak[0].flops_per_s is 0"},
      {"memory_bytes: 1e10", "memory_bytes: nan", 42, "devices[0].memory_bytes is nan"},
  };
  for (const Fault& fault : faults) {
    CAPTURE(fault.from, fault.to);
    const std::string text = replaced(kSound, fault.from, fault.to);
    CHECK_THROWS_AS(read(text), UserError);
    CHECK_THROWS_WITH(read(text), Catch::StartsWith(fmt::format("c.textproto:{}: ", fault.line)) &&
                                      Catch::Contains(fault.what));
  }
}

TEST_CASE("the line is that of the right one of several groups, inside another file too") {
  const std::string second =
      replaced(kSound, "# 25\n", "# 25\ngroups {\n  count: 1\n  node { device: \"mine\" devices: 2 }\n}\n");
  CHECK_THROWS_WITH(read(second),
                    Catch::StartsWith("c.textproto:28: ") && Catch::Contains("how the devices"));
  const std::string plan = "cluster {\n" + replaced(kSound, "count: 2 ", "count: -1 ") + "}\n";
  proto::Cluster message;
  parse_textproto(replaced(kSound, "count: 2 ", "count: -1 "), "x", &message);
  CHECK_THROWS_WITH(
      cluster_from_proto(message, FieldCheck("plan", plan, *proto::Plan::descriptor()).inside("cluster")),
      Catch::StartsWith("plan:16: "));
}

TEST_CASE("nodes without ports are not connected") {
  const std::string text =
      replaced(replaced(kSound, "count: 2 ", "count: 0 "), "of_device: [0, 0, 1, 1]", "");
  CHECK_THROWS_WITH(read(text), Catch::StartsWith("c.textproto:14: ") && Catch::Contains("no network port"));
}

TEST_CASE("no nodes, no devices, unknown fields: refused") {
  CHECK_THROWS_WITH(read("name: \"c\""), Catch::Contains("no nodes"));
  CHECK_THROWS_WITH(read("nome: \"c\""), Catch::StartsWith("c.textproto:1: "));
  CHECK_THROWS_AS(read(""), UserError);
}

TEST_CASE("a mesh must be square, symmetric and joined") {
  const auto mesh = [](const std::string& links, double pcie = 0) {
    return fmt::format(R"(name: "m"
groups {{ count: 1 node {{ device: "v100-sxm2-16g" devices: 3
  intra {{ kind: NVLINK_MESH bandwidth_bytes_per_s: 1e11
    mesh_links: [{}] }}
  nic {{ pcie_bandwidth_bytes_per_s: {} }} }} }}
)",
                       links, pcie);
  };
  CHECK(read(mesh("0,1,0, 1,0,1, 0,1,0")).devices() == 3);  // two hops join 0 and 2
  CHECK_THROWS_WITH(read(mesh("0,1,0")),
                    Catch::StartsWith("c.textproto:4: ") && Catch::Contains("3 entries"));
  CHECK_THROWS_WITH(read(mesh("0,1,0, 2,0,1, 0,1,0")), Catch::Contains("disagree"));
  CHECK_THROWS_WITH(read(mesh("1,1,0, 1,0,1, 0,1,0")), Catch::Contains("to itself"));
  CHECK_THROWS_WITH(read(mesh("0,-1,0, -1,0,1, 0,1,0")), Catch::Contains("negative"));
  CHECK_THROWS_WITH(read(mesh("0,1,0, 1,0,0, 0,0,0")),
                    Catch::Contains("no path of two links joins devices 0 and 2"));
  CHECK(read(mesh("0,1,0, 1,0,0, 0,0,0", 12e9)).devices() == 3);  // the host joins them
}

TEST_CASE("the fabric follows the number of nodes") {
  Cluster cluster = read(kSound);
  CHECK(with_nodes(cluster, 1).overrides.empty());
  CHECK(with_nodes(cluster, 2).groups[0].node.hosts == std::vector<std::string>{"a", "b"});
  CHECK(with_nodes(cluster, 9).groups[0].node.hosts.empty());
  CHECK(with_nodes(cluster, 9).overrides.size() == 2);
  cluster.fabric.kind = FabricKind::torus;
  cluster.fabric.torus = {2, 2, 1};
  CHECK(with_nodes(cluster, 4).fabric.torus == std::vector<int>{2, 2, 1});
  CHECK(with_nodes(cluster, 64).fabric.torus == std::vector<int>{4, 4, 4});
  CHECK(with_nodes(cluster, 30).fabric.torus == std::vector<int>{5, 3, 2});
  CHECK(with_nodes(cluster, 7).fabric.torus == std::vector<int>{7, 1, 1});
  cluster.fabric.kind = FabricKind::dragonfly;
  cluster.fabric.routers = 2;
  cluster.fabric.nodes_per_router = 3;
  CHECK(with_nodes(cluster, 13).fabric.groups == 3);
  CHECK(with_nodes(cluster, 12).fabric.groups == 2);
  CHECK_THROWS_AS(with_nodes(cluster, 0), UserError);
  CHECK_THROWS_AS(with_nodes(cluster, -3), UserError);
  CHECK_THROWS_AS(with_nodes(cluster, 2'000'000'000), UserError);
  cluster.groups.push_back(cluster.groups[0]);
  CHECK_THROWS_WITH(with_nodes(cluster, 3), Catch::Contains("2 kinds of node"));
}

TEST_CASE("devices are whole nodes or the first of one") {
  const Cluster cluster = read(kSound);
  CHECK(with_devices(cluster, 16).nodes() == 4);
  CHECK(with_devices(cluster, 8).nodes() == 2);
  CHECK(with_devices(cluster, 40).nodes() == 10);
  Cluster powered = cluster;
  powered.groups[0].node.host_power_w = 800;
  CHECK(with_devices(powered, 3).groups[0].node.host_power_w == 600);  // as the price, by device
  const Cluster three = with_devices(cluster, 3);
  CHECK(three.nodes() == 1);
  CHECK(three.devices() == 3);
  CHECK(three.groups[0].node.nic.of_device == std::vector<int>{0, 0, 1});
  CHECK(text_of(read(text_of(three))) == text_of(three));
  CHECK(text_of(with_devices(three, 4)) == text_of(with_devices(cluster, 4)));  // the node itself
  CHECK(text_of(with_devices(three, 2)) == text_of(with_devices(cluster, 2)));
  CHECK(with_devices(cluster, 1).devices() == 1);
  CHECK_THROWS_WITH(with_devices(cluster, 6), Catch::Contains("6 devices are not whole nodes of 4"));
  CHECK_THROWS_AS(with_devices(cluster, 0), UserError);
}

TEST_CASE("of racks as many devices each can be had") {
  const Cluster rack = load_cluster("gb200-nvl72");
  const Cluster part = with_devices(rack, 512);
  CHECK(part.nodes() == 8);
  CHECK(part.groups[0].node.devices == 64);
  CHECK(part.devices() == 512);
  CHECK(nodes_in_words(part) == "8 nodes (64 of 72 devices each)");
  CHECK(text_of(read(text_of(part))) == text_of(part));
  CHECK(with_devices(rack, 1024).nodes() == 16);  // fifteen cannot give as many each
  CHECK(with_devices(rack, 576).nodes() == 8);
  CHECK(with_devices(rack, 96).nodes() == 2);
  CHECK(text_of(with_devices(part, 144)) == text_of(with_devices(rack, 144)));  // whole racks again
  CHECK_THROWS_WITH(with_devices(rack, 509), Catch::Contains("504 or 576") && Catch::Contains("racks"));
}

TEST_CASE("a part of a mesh keeps the rate of each link") {
  const std::string text = R"(name: "m" groups { count: 1 node { device: "v100-sxm2-16g" devices: 3
    intra { kind: NVLINK_MESH bandwidth_bytes_per_s: 30e9 mesh_links: [0,1,2, 1,0,1, 2,1,0] } } })";
  const Cluster whole = read(text);  // the widest row has 3 links: 10 GB/s each
  const Cluster part = with_devices(whole, 2);
  CHECK(Network(whole).route(0, 1).bandwidth_bytes_per_s == Approx(10e9));
  CHECK(Network(part).route(0, 1).bandwidth_bytes_per_s == Approx(10e9));
}

TEST_CASE("what nodes on one machine share, and how its messages travel, survive a round trip") {
  const Cluster cluster = read(R"(name: "h" shared_cores: 2
groups { count: 3 node { device: "generic-cpu" devices: 1 nic { count: 1 bandwidth_bytes_per_s: 1e7 } } }
fabric { kind: STAR transport: TCP }
communication { library: "mpi" network_efficiency: 0.9 network_exchange_efficiency: 0.8 })");
  CHECK(cluster.shared_cores == 2);
  CHECK(devices_beside(cluster) == 2);
  CHECK(cluster.communication.network_exchange_efficiency == 0.8);
  CHECK(cluster.communication.network_eager_bytes == 122880);
  proto::Cluster message;
  to_proto(cluster, &message);
  CHECK(message.shared_cores() == 2);
  CHECK(message.communication().network_exchange_efficiency() == 0.8);
}

TEST_CASE("ranks on shared cores share the memory") {
  const std::string text =
      R"(name: "h" groups { count: 1 node { device: "generic-cpu" devices: 4 shared_cores: 4
    host_memory_bytes: 16e9 intra { kind: SHARED_MEMORY bandwidth_bytes_per_s: 5e9 } } })";
  const Cluster eight = with_devices(read(text), 8);
  CHECK(eight.nodes() == 1);
  CHECK(eight.devices() == 8);
  CHECK(eight.groups[0].node.shared_cores == 4);
  CHECK(eight.profiles[0].memory_bytes == 2e9);
  CHECK(with_devices(read(text), 3).profiles[0].memory_bytes == Approx(16e9 / 3));
  CHECK_THROWS_WITH(with_nodes(read(text), 2), Catch::Contains("no network port"));
}

TEST_CASE("a node's override slows all its devices") {
  Cluster cluster = read(kSound);
  cluster.overrides.push_back({.node = 1, .target = OverrideTarget::node, .speed = 0.5});
  CHECK(cluster.device_speed(4) == 0.5);
  CHECK(cluster.device_speed(7) == 0.25);
  CHECK(cluster.device_speed(8) == 1);
  CHECK(cluster.nic_speed(1, 0) == 1);
}

TEST_CASE("damaged cluster files are refused, never worse") {
  const int refused = testing::survive(kSound, 3000, [](const std::string& text) {
    const Cluster cluster = read(text);
    if (cluster.devices() > 1) Network(cluster).route(0, cluster.devices() - 1);
  });
  CHECK(refused > 1000);
}
