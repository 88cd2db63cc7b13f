// Collectives alone on the catalog's machines.
#include <catch2/catch.hpp>

#include "base/error.h"
#include "sim/network/collective_edges.h"
#include "sim/simulator.h"
#include "tests/support/walked.h"
#include "topologies/readers/catalog.h"

using namespace orrery;
using namespace orrery::sim;

namespace {

constexpr CollectiveKind kKinds[] = {CollectiveKind::all_reduce, CollectiveKind::reduce_scatter,
                                     CollectiveKind::all_gather, CollectiveKind::all_to_all,
                                     CollectiveKind::broadcast,  CollectiveKind::reduce,
                                     CollectiveKind::gather,     CollectiveKind::scatter};

std::vector<Edge> edges_of(EdgeShape shape, const Cluster& cluster, int devices, int root = 0) {
  std::vector<int> members;
  for (int d = 0; d < devices; ++d) members.push_back(d);
  return collective_edges(shape, root, members, cluster);
}

}  // namespace

TEST_CASE("on an idle network a simulated collective takes what its cost model says") {
  std::size_t point = 0;
  for (const char* name :
       {"dgx-a100", "dgx-h100", "dgx-v100-32g", "a100-eth100", "v100-ib100", "pcie-4090"}) {
    const Cluster all = load_cluster(name);
    const int per_node = all.groups[0].node.devices;
    for (const int nodes : {1, 2, 3, 8}) {
      const Cluster cluster = with_nodes(all, nodes);
      const int devices = nodes * per_node;
      const Network network(cluster);
      std::vector<int> members;
      for (int d = 0; d < devices; ++d) members.push_back(d);
      const GroupShape shape = group_shape(network, members);
      for (const CollectiveKind kind : kKinds)
        for (const double bytes : {0.0, 8.0, 1e5, 1e7, 1e9}) {
          if (!walked(++point, 3)) continue;
          const CollectivePlan plan = plan_collective(kind, bytes, shape, cluster);
          const double time = simulate_collective(kind, bytes, cluster, devices, Detail::flows).time_s;
          CAPTURE(name, nodes, std::string(name_of(kind)), bytes, std::string(name_of(plan.algorithm)));
          CHECK(time == Approx(plan.seconds(bytes)).epsilon(0.05));
        }
    }
  }
}

TEST_CASE("one device has nothing to say, and more devices than there are is the user's error") {
  const Cluster cluster = with_nodes(load_cluster("dgx-a100"), 1);
  for (const CollectiveKind kind : kKinds)
    CHECK(simulate_collective(kind, 1e9, cluster, 1, Detail::flows).time_s == 0);
  CHECK_THROWS_AS(simulate_collective(CollectiveKind::all_reduce, 1e9, cluster, 9, Detail::flows), UserError);
  CHECK_THROWS_AS(simulate_collective(CollectiveKind::all_reduce, 1e9, cluster, 0, Detail::flows), UserError);
}

TEST_CASE("a ring leaves a node by each of its ports with its share of the bytes") {
  const Cluster cluster = with_nodes(load_cluster("dgx-a100"), 3);
  double inside = 0;
  double between = 0;
  for (const Edge& edge : edges_of(EdgeShape::ring, cluster, 24)) {
    if (edge.source / 8 == edge.destination / 8) {
      CHECK(edge.share == 1);
      ++inside;
    } else {
      CHECK(edge.source % 8 == edge.destination % 8);
      between += edge.share;
    }
  }
  CHECK(inside == 24);
  CHECK(between == Approx(3));
}

TEST_CASE("each of the two trees reaches every node, and no node is inner in both") {
  for (const int nodes : {2, 3, 4, 5, 8, 13}) {
    const Cluster cluster = with_nodes(load_cluster("v100-ib100"), nodes);
    std::vector<double> sends(static_cast<std::size_t>(nodes), 0);
    double total = 0;
    for (const Edge& edge : edges_of(EdgeShape::tree, cluster, nodes)) {
      sends[static_cast<std::size_t>(edge.source)] += edge.share;
      total += edge.share;
    }
    // Two trees of nodes - 1 edges, half of the bytes each, up and down.
    CHECK(total == Approx(2 * (nodes - 1)));
    for (const double share : sends) CHECK(share <= 2.0 + 1e-9);
  }
}

TEST_CASE("a step-by-step collective and its flow agree for kinds that start all edges at once") {
  const Cluster cluster = with_nodes(load_cluster("dgx-a100"), 2);
  for (const CollectiveKind kind : {CollectiveKind::all_to_all, CollectiveKind::broadcast,
                                    CollectiveKind::gather, CollectiveKind::scatter})
    for (const int devices : {2, 8, 16}) {
      const double bytes = 64 << 20;
      CAPTURE(std::string(name_of(kind)), devices);
      CHECK(simulate_collective(kind, bytes, cluster, devices, Detail::messages).time_s ==
            Approx(simulate_collective(kind, bytes, cluster, devices, Detail::flows).time_s).epsilon(0.05));
    }
}
