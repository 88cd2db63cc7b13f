// Orders in which the operators of a graph may stand, for pipelines: a stage is a run of consecutive layers.
//
// Where single tensors join the blocks of a graph (VGG, ResNet) every order has the same cut points. Parallel
// branches may be run through in many orders, and which cuts there are depends on the order. The best one for
// a number of stages is NP-hard to find (it contains minimum cut linear arrangement); four are tried.
#pragma once

#include <vector>

#include "workloads/workload.h"

namespace orrery {

// Whether some cut between layers carries more than one tensor: then the order of the operators matters.
bool has_parallel_branches(const Workload& workload);

// Topological orders as lists of operators, without repetitions, the file's own first: depth first (a branch
// is finished before the next is begun), by level (the longest way from an input; ties as in the file) and
// least live (of what is ready, what leaves the fewest elements waiting for readers).
std::vector<std::vector<int>> linear_orders(const Workload& workload);

// The same graph with its operators in that order and layers for pipelines: blocks that single tensors join,
// heavy ones cut before each product (refine_layers).
Workload in_order(const Workload& workload, const std::vector<int>& order);

}  // namespace orrery
