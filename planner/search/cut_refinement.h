// Cuts of pipelines beyond those that the space lists (planner/space): of the most promising choices, layers
// are moved one by one between stages while the closed form gets better.
#pragma once

#include <memory>

#include "planner/search/candidates.h"

namespace orrery::planner {

// Adds to `candidates->promising`, and counts, what is found: plans that fit and whose expectation is less
// by kCutWorth than that of the same plan with the cut of the space. Of one that is added no neighbour (a
// layer moved from one part to another) that fits is expected to be better, unless there are more than
// kAllMoves parts: then moves between neighbouring parts and from or to both ends are looked at. Choices with
// chunks of like layers keep their even cut, general graphs the optimal one (graph_cuts.h).
void refine_cuts(const std::shared_ptr<const Job>& job, Objective objective, const Room& room,
                 Estimator& estimator, Candidates* candidates);
constexpr int kAllMoves = 16;
constexpr double kCutWorth = 0.003;

}  // namespace orrery::planner
