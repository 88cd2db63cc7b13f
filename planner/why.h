// Why the best plan is best, in three short sentences made from numbers.
#pragma once

#include <string>
#include <vector>

#include "planner/candidates.h"
#include "planner/estimator.h"
#include "planner/evaluation.h"

namespace orrery::planner {

// `ranked`: simulated plans, best first, at least one.
std::string explain(const std::vector<Evaluation>& ranked, const Candidates& candidates,
                    Estimator& estimator);

}  // namespace orrery::planner
