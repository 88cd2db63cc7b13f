// Why the best plan is best, in three short sentences made from numbers.
#pragma once

#include <string>
#include <vector>

#include "planner/closed_form/estimator.h"
#include "planner/evaluation/evaluation.h"
#include "planner/search/candidates.h"

namespace orrery::planner {

// Of two simulated plans: what the second takes longer, and the part of the step that grew most.
struct Loss {
  double seconds = 0;
  std::string part;  // of `breakdown_s`
  double part_s = 0;
};
Loss loss_against(const Evaluation& best, const Evaluation& other);

// The changes of hardware that people can buy, the most useful first.
std::vector<Sensitivity> sensitivities(const Plan& best, const Candidates& candidates, Estimator& estimator);

// `ranked`: simulated plans, best first, at least one.
std::string explain(const std::vector<Evaluation>& ranked, const std::vector<Sensitivity>& changes);

}  // namespace orrery::planner
