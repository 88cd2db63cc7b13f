// The layer graph on Boost.Graph: for whoever needs graph algorithms (validation, pipeline cuts of general
// graphs).
#pragma once

#include <boost/graph/adjacency_list.hpp>

#include "workloads/workload.h"

namespace orrery {

// Vertex v is Workload::operators[v].
using LayerGraph = boost::adjacency_list<boost::vecS, boost::vecS, boost::bidirectionalS>;

// Throws InternalError when `operators` is not in topological order (importers check before).
LayerGraph layer_graph(const Workload& workload);

}  // namespace orrery
