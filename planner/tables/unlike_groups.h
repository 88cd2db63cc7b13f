// Layouts whose digits and a node's devices do not divide each other: some groups lie in one node, others of
// the same kind across the end of it (16 neighbours on racks of 72: four groups, then one of 8 and 8).
#pragma once

#include <cstdint>
#include <vector>

#include "program/plan.h"

namespace orrery::planner {

// Ranks whose groups may stand on nodes of so many devices in different ways: rank 0, and where groups can be
// unlike the last ranks of the first nodes, for what lies across the end of a node is a group of these.
std::vector<int> ranks_unlike(const Choices& choices, int on_node);

// How many of a group's members each node has, fewest first: where nodes are alike, groups of one spread are.
std::vector<int> spread_over_nodes(const std::vector<std::int32_t>& ranks, int on_node);

}  // namespace orrery::planner
