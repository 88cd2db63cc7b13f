// How fast ranks compute that share the cores of a node.
#pragma once

#include <vector>

#include "sim/scenario/scenario.h"

namespace orrery::sim {

// Ranks that compute now.
struct AtWork {
  double core_share = 1;  // of a core that each may use at most
  int ranks = 1;
};

// Relative to full speed, of one among them that may use `core_share` of a core. Busy ranks share the cores
// evenly, none beyond its own share of a core. `taken_cores`: by packets, from all alike, for interrupts do
// not ask which core computes. Orders `at_work`.
double core_speed(const NodeCores& node, std::vector<AtWork>& at_work, double core_share, double taken_cores);

}  // namespace orrery::sim
