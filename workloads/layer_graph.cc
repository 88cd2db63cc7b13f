#include "workloads/layer_graph.h"

#include <algorithm>
#include <boost/graph/strong_components.hpp>
#include <boost/property_map/property_map.hpp>
#include <boost/range/iterator_range.hpp>

#include "base/error.h"

namespace orrery {
namespace {

LayerGraph edges_of(const std::vector<Operator>& operators) {
  LayerGraph graph(operators.size());
  for (std::size_t v = 0; v < operators.size(); ++v)
    for (const int input : operators[v].inputs) boost::add_edge(static_cast<std::size_t>(input), v, graph);
  return graph;
}

}  // namespace

LayerGraph layer_graph(const Workload& workload) {
  for (std::size_t v = 0; v < workload.operators.size(); ++v)
    for (const int input : workload.operators[v].inputs)
      ORRERY_CHECK(input >= 0 && static_cast<std::size_t>(input) < v,
                   "operator " + workload.operators[v].name + " is out of topological order");
  return edges_of(workload.operators);
}

std::vector<std::vector<int>> crossing_operators(const Workload& workload) {
  const LayerGraph graph = layer_graph(workload);
  std::vector<std::vector<int>> crossing(static_cast<std::size_t>(workload.layers) + 1);
  for (const auto producer : boost::make_iterator_range(boost::vertices(graph))) {
    int last = workload.operators[producer].layer;
    for (const auto edge : boost::make_iterator_range(boost::out_edges(producer, graph)))
      last = std::max(last, workload.operators[boost::target(edge, graph)].layer);
    // What stands before the first layer is cut off with it, what stands behind the last with that one.
    const int begin = std::max(workload.operators[producer].layer, 0) + 1;
    for (int position = begin; position <= std::min(last, workload.layers - 1); ++position)
      crossing[static_cast<std::size_t>(position)].push_back(static_cast<int>(producer));
  }
  return crossing;
}

std::vector<int> find_cycle(const std::vector<Operator>& operators) {
  // Almost every graph stands in topological order, which needs no search.
  bool ordered = true;
  for (std::size_t v = 0; v < operators.size(); ++v)
    for (const int input : operators[v].inputs) ordered = ordered && static_cast<std::size_t>(input) < v;
  if (ordered) return {};
  const LayerGraph graph = edges_of(operators);
  std::vector<int> component(operators.size());
  boost::strong_components(
      graph, boost::make_iterator_property_map(component.begin(), boost::get(boost::vertex_index, graph)));
  std::vector<int> size(operators.size(), 0);
  for (const int c : component) ++size[c];
  for (std::size_t start = 0; start < operators.size(); ++start) {
    const auto& inputs = operators[start].inputs;
    const bool loop = std::find(inputs.begin(), inputs.end(), static_cast<int>(start)) != inputs.end();
    if (loop) return {static_cast<int>(start)};
    if (size[component[start]] < 2) continue;
    // Back along inputs within the component until an operator comes again.
    std::vector<int> path;
    int at = static_cast<int>(start);
    while (std::find(path.begin(), path.end(), at) == path.end()) {
      path.push_back(at);
      for (const int input : operators[at].inputs) {
        if (component[input] != component[at]) continue;
        at = input;
        break;
      }
    }
    path.erase(path.begin(), std::find(path.begin(), path.end(), at));
    std::reverse(path.begin(), path.end());
    std::rotate(path.begin(), std::min_element(path.begin(), path.end()), path.end());
    return path;
  }
  return {};
}

}  // namespace orrery
