#include "topologies/node_counts.h"

#include <catch2/catch.hpp>

#include "base/error.h"
#include "proto/cluster.pb.h"
#include "proto/textproto.h"
#include "topologies/network.h"

using namespace orrery;

namespace {

const std::string kMixed = R"(name: "mixed"
groups {
  count: 3
  node {
    name: "p3"
    device: "v100-sxm2-16g"
    devices: 4
    intra { kind: PCIE bandwidth_bytes_per_s: 12e9 latency_s: 2e-6 }
    nic { count: 1 bandwidth_bytes_per_s: 1.25e9 latency_s: 2e-5 pcie_bandwidth_bytes_per_s: 12e9 }
    hosts: ["a", "b", "c"]
  }
}
groups {
  count: 2
  node {
    device: "t4"
    devices: 2
    intra { kind: PCIE bandwidth_bytes_per_s: 12e9 latency_s: 2e-6 }
    nic { count: 1 bandwidth_bytes_per_s: 6.25e9 latency_s: 2e-5 pcie_bandwidth_bytes_per_s: 12e9 }
  }
}
fabric { kind: FAT_TREE transport: TCP switch_latency_s: 5e-7 nodes_per_leaf: 4 oversubscription: 1 }
overrides { node: 1 device: 3 target: "device" speed: 0.5 }
overrides { node: 4 target: "node" speed: 0.9 }
)";

Cluster mixed(const std::string& text = kMixed) {
  proto::Cluster message;
  parse_textproto(text, "mixed.textproto", &message);
  return cluster_from_proto(message, "mixed.textproto", text);
}

Cluster with_counts(const std::vector<int>& counts) {
  return with_nodes(mixed(), NodeCounts{counts});
}

}  // namespace

TEST_CASE("counts of nodes are one number or one of each kind") {
  CHECK(read_node_counts("8") == NodeCounts{{8}});
  CHECK(read_node_counts("3+5") == NodeCounts{{3, 5}});
  CHECK(read_node_counts("1k+0") == NodeCounts{{1000, 0}});
  CHECK(text_of(NodeCounts{{3, 0, 5}}) == "3+0+5");
  for (const char* wrong :
       {"", "0", "0+0", "+", "3+", "+5", "3+-1", "3+x", "3 + 5", "3.5", "-1", "5000000"}) {
    INFO(wrong);
    CHECK_FALSE(read_node_counts(wrong));
  }
}

TEST_CASE("a mixed cluster has the nodes of each kind that are asked for") {
  CHECK(node_counts(mixed()) == NodeCounts{{3, 2}});
  CHECK(nodes_in_words(mixed()) == "5 nodes (3 of p3 + 2 of 2 t4)");
  const Cluster larger = with_counts({4, 8});
  CHECK(larger.nodes() == 12);
  CHECK(larger.devices() == 32);
  CHECK(larger.groups[0].node.hosts.empty());
  // A node keeps what is its own by its new number.
  REQUIRE(larger.overrides.size() == 2);
  CHECK(larger.overrides[0].node == 1);
  CHECK(larger.overrides[1].node == 5);
  CHECK(larger.device_speed(larger.first_device(5)) == 0.9);
  const Cluster smaller = with_counts({1, 2});
  REQUIRE(smaller.overrides.size() == 1);
  CHECK(smaller.overrides[0].node == 2);
  CHECK(smaller.groups[0].node.hosts == std::vector<std::string>{"a"});
  CHECK(Network(smaller).route(0, 7).links.size() > 1);
  CHECK(nodes_in_words(smaller) == "3 nodes (1 of p3 + 2 of 2 t4)");
}

TEST_CASE("a kind of node of which there are none is left out, with its device") {
  const Cluster alone = with_counts({0, 2});
  REQUIRE(alone.groups.size() == 1);
  REQUIRE(alone.profiles.size() == 1);
  CHECK(alone.profile_of(0).name == "t4");
  REQUIRE(alone.overrides.size() == 1);
  CHECK(alone.overrides[0].node == 1);
  CHECK(nodes_in_words(alone) == "2 nodes");
  CHECK(with_nodes(alone, 7).devices() == 14);
  // What is written and read back is the same.
  proto::Cluster message;
  to_proto(alone, &message);
  CHECK(mixed(to_textproto(message)).devices() == 4);
}

TEST_CASE("one number for several kinds of nodes is all of them, or refused with what is expected") {
  CHECK(with_counts({5}).devices() == mixed().devices());
  CHECK(with_devices(mixed(), 16).nodes() == 5);
  const char* expected = "2 kinds of node (expected how many of each, p3 + 2 t4: `nodes` 3+2 is all of them)";
  for (const auto& [counts, says] : {std::pair{std::vector{4}, "`nodes` 4: cluster 'mixed' has "},
                                     {{3, 2, 1}, "`nodes` 3+2+1: cluster 'mixed' has "}})
    CHECK_THROWS_WITH(with_counts(counts), Catch::Equals(std::string(says) + expected));
  CHECK_THROWS_WITH(with_devices(mixed(), 8),
                    Catch::Equals(std::string("`gpus` 8: cluster 'mixed' has ") + expected));
  CHECK_THROWS_WITH(with_nodes(with_counts({3, 0}), NodeCounts{{3, 5}}),
                    Catch::Equals("`nodes` 3+5: cluster 'mixed' has 1 kind of node (expected one number)"));
  CHECK_THROWS_WITH(with_counts({0, 0}), Catch::StartsWith("0+0 nodes"));
  CHECK_THROWS_WITH(with_counts({3'000'000, 3'000'000}), Catch::StartsWith("3000000+3000000 nodes"));
}
