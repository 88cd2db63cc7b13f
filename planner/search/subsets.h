// The parts of a machine of heterogeneous devices that are alike in themselves: what a plan that uses all
// must beat.
#pragma once

#include <vector>

#include "topologies/cluster.h"

namespace orrery::planner {

// Of several kinds of nodes each kind alone; of one kind with degraded nodes (slow devices, slow or dead
// ports) the sound ones alone. Degraded nodes are left out of both. Empty where all nodes are alike and
// sound.
std::vector<Cluster> homogeneous_subsets(const Cluster& cluster);

}  // namespace orrery::planner
