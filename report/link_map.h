// How busy a cluster's links are in a step, ready to be drawn: vertices, what joins them, and the busiest of
// each kind.
#pragma once

#include "base/json.h"
#include "sim/simulator.h"
#include "topologies/cluster.h"

namespace orrery {

// Links looked at and nodes drawn: of a larger cluster the first nodes, which fill first.
constexpr std::size_t kMostLinks = 200'000;
constexpr int kMostNodesDrawn = 8;

// kinds: kind, links, used, bandwidth_bytes_per_s, mean and most utilization (both over all links of the
// kind),
//   bytes; vertices: name, node (-1: of the fabric), tier (0 devices, 1 what joins them, 2 ports, 3 and 4
//   switches); edges: from, to (indices), kind, utilization (of its busier direction), bytes (of both);
// nodes, drawn. Empty where the cluster has more links than kMostLinks.
Json network_json(const Cluster& cluster, const sim::Simulation& simulation);

}  // namespace orrery
