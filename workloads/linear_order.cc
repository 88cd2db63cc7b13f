#include "workloads/linear_order.h"

#include <algorithm>
#include <boost/graph/topological_sort.hpp>
#include <boost/range/iterator_range.hpp>
#include <iterator>
#include <numeric>
#include <set>
#include <utility>

#include "base/error.h"
#include "workloads/graph_layers.h"
#include "workloads/layer_graph.h"

namespace orrery {
namespace {

std::vector<int> depth_first(const LayerGraph& graph) {
  std::vector<LayerGraph::vertex_descriptor> finished;
  boost::topological_sort(graph, std::back_inserter(finished));
  return {finished.rbegin(), finished.rend()};
}

std::vector<int> by_level(const LayerGraph& graph) {
  std::vector<int> level(boost::num_vertices(graph), 0);
  for (const auto v : boost::make_iterator_range(boost::vertices(graph)))  // in the file's order
    for (const auto edge : boost::make_iterator_range(boost::in_edges(v, graph)))
      level[v] = std::max(level[v], level[boost::source(edge, graph)] + 1);
  std::vector<int> order(level.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return level[static_cast<std::size_t>(a)] < level[static_cast<std::size_t>(b)];
  });
  return order;
}

std::vector<int> least_live(const LayerGraph& graph, const Workload& workload) {
  const std::size_t count = boost::num_vertices(graph);
  std::vector<std::size_t> waits(count), readers(count);
  std::vector<std::size_t> ready;
  for (std::size_t v = 0; v < count; ++v) {
    waits[v] = boost::in_degree(v, graph);
    readers[v] = boost::out_degree(v, graph);
    if (waits[v] == 0) ready.push_back(v);
  }
  // Elements alive more than before once the operator has run.
  const auto grows_by = [&](std::size_t v) {
    double elements = readers[v] > 0 ? static_cast<double>(workload.operators[v].output_elements) : 0;
    for (const auto edge : boost::make_iterator_range(boost::in_edges(v, graph))) {
      const auto input = boost::source(edge, graph);
      if (readers[input] == 1) elements -= static_cast<double>(workload.operators[input].output_elements);
    }
    return elements;
  };
  std::vector<int> order;
  while (!ready.empty()) {
    const auto next = std::min_element(ready.begin(), ready.end(), [&](std::size_t a, std::size_t b) {
      return std::make_pair(grows_by(a), a) < std::make_pair(grows_by(b), b);
    });
    const std::size_t v = *next;
    ready.erase(next);
    order.push_back(static_cast<int>(v));
    for (const auto edge : boost::make_iterator_range(boost::in_edges(v, graph)))
      --readers[boost::source(edge, graph)];
    for (const auto edge : boost::make_iterator_range(boost::out_edges(v, graph)))
      if (--waits[boost::target(edge, graph)] == 0) ready.push_back(boost::target(edge, graph));
  }
  return order;
}

}  // namespace

bool has_parallel_branches(const Workload& workload) {
  if (workload.transformer) return false;
  const auto crossing = crossing_operators(workload);
  return std::any_of(crossing.begin(), crossing.end(), [&](const std::vector<int>& operators) {
    return std::count_if(operators.begin(), operators.end(), [&](int op) {
             return workload.operators[static_cast<std::size_t>(op)].output_elements > 0;
           }) > 1;
  });
}

std::vector<std::vector<int>> linear_orders(const Workload& workload) {
  const LayerGraph graph = layer_graph(workload);
  std::vector<int> own(workload.operators.size());
  std::iota(own.begin(), own.end(), 0);
  std::vector<std::vector<int>> orders = {own};
  for (std::vector<int>& order :
       std::vector<std::vector<int>>{depth_first(graph), by_level(graph), least_live(graph, workload)})
    if (std::find(orders.begin(), orders.end(), order) == orders.end()) orders.push_back(std::move(order));
  return orders;
}

Workload in_order(const Workload& workload, const std::vector<int>& order) {
  ORRERY_CHECK(order.size() == workload.operators.size(), "an order of all operators");
  std::vector<int> place(order.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    place[static_cast<std::size_t>(order[i])] = static_cast<int>(i);
  Workload moved = workload;
  moved.operators.clear();
  for (const int from : order) {
    Operator op = workload.operators[static_cast<std::size_t>(from)];
    for (int& input : op.inputs) input = place[static_cast<std::size_t>(input)];
    moved.operators.push_back(std::move(op));
  }
  moved.layers = refine_layers(&moved.operators);
  return moved;
}

}  // namespace orrery
