// The layer graph on Boost.Graph: for whoever needs graph algorithms (validation, pipeline cuts of general
// graphs).
#pragma once

#include <boost/graph/adjacency_list.hpp>
#include <vector>

#include "workloads/workload.h"

namespace orrery {

// Vertex v is Workload::operators[v]; an edge for each input, from its producer.
using LayerGraph = boost::adjacency_list<boost::vecS, boost::vecS, boost::bidirectionalS>;

// Throws InternalError when `operators` is not in topological order (importers check before).
LayerGraph layer_graph(const Workload& workload);

// By position 0 .. layers: the operators before that layer whose outputs it or a later one reads, in
// increasing order: what a pipeline cut there carries. Position `layers` and 0 carry nothing.
std::vector<std::vector<int>> crossing_operators(const Workload& workload);

// Operators on some cycle, in the direction of the data, the lowest first; empty: there is none. Inputs must
// be indices of operators.
std::vector<int> find_cycle(const std::vector<Operator>& operators);

}  // namespace orrery
