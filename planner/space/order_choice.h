// The order of a graph's operators that suits pipelines, where parallel branches leave a choice.
#pragma once

#include <memory>

#include "planner/space/pins.h"
#include "program/plan.h"

namespace orrery::planner {

// The job with its operators in that of linear_orders (workloads/linear_order.h) whose pipelines, cut
// optimally (pipeline_cut.h), take least by the closed form, over the numbers of stages and micro-batches
// that the search may try: a heuristic over orders, exact for each. Heavy blocks are cut before each product
// (linear_order.h). How far from any cut of the graph it can be: least_slowest_stage_s (graph_cuts.h). No pin
// changes the order, but that pinned layers which add up to the file's alone are the file's. The job itself
// for transformers, graphs without parallel branches, layers that the file numbers, the localhost (whose
// executor knows the file's order alone), and where there is nothing to cut.
std::shared_ptr<const Job> with_order(const std::shared_ptr<const Job>& job, const Pins& pins);

}  // namespace orrery::planner
