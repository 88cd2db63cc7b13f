#include "workloads/layer_graph.h"

#include <catch2/catch.hpp>

#include "base/error.h"
#include "workloads/readers/catalog.h"

namespace orrery {
namespace {

TEST_CASE("layer graph: an edge for each input, from its producer") {
  const Workload gpt2 = load_workload("gpt2-tiny");
  const LayerGraph graph = layer_graph(gpt2);
  CHECK(boost::num_vertices(graph) == gpt2.operators.size());
  std::size_t inputs = 0;
  for (const Operator& op : gpt2.operators) inputs += op.inputs.size();
  CHECK(boost::num_edges(graph) == inputs);
  CHECK(boost::edge(0, 1, graph).second);  // embedding to norm1
}

TEST_CASE("layer graph: operators out of order are a defect, a cycle is found from its lowest member") {
  Workload w;
  w.operators.resize(4);
  w.operators[1].inputs = {3};
  CHECK_THROWS_AS(layer_graph(w), InternalError);
  CHECK(find_cycle(w.operators).empty());
  w.operators[2].inputs = {1};
  w.operators[3].inputs = {0, 2};
  CHECK(find_cycle(w.operators) == std::vector<int>{1, 2, 3});
}

}  // namespace
}  // namespace orrery
