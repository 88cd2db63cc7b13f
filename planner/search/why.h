// Why the best plan is best, in three short sentences made from numbers.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "planner/closed_form/estimator.h"
#include "planner/evaluation/evaluation.h"
#include "planner/search/candidates.h"

namespace orrery::planner {

// What a simulated plan takes, of what its step consists and how full its fullest device is: one sentence.
std::string what_bounds(const Evaluation& best);

// Of two simulated plans: what the second takes longer, and the part of the step that grew most.
struct StepSlowdown {
  double seconds = 0;
  std::string part;  // of `breakdown_s`
  double part_s = 0;
};
StepSlowdown slowdown_against(const Evaluation& best, const Evaluation& other);

// The changes of hardware that people can buy, the most useful first.
std::vector<Sensitivity> sensitivities(const Plan& best, const Candidates& candidates, Estimator& estimator);

// What the plan that is best as predicted would save, and why it is not the answer: one sentence.
std::string why_not_nominal(const Evaluation& best, const Evaluation& nominal, int compared);
// What little memory costs in time, the least of all plans being `least_bytes`: one sentence or two.
std::string price_of_memory(const Evaluation& best, const std::optional<Evaluation>& fastest,
                            double least_bytes);
// What a plan saves that fits less surely than was asked for, and what would get it: one sentence.
std::string faster_but_unsure(const Evaluation& best, const Evaluation& unsure);
// What a known recipe would take beside the answer: one sentence.
std::string beside_recipe(const Evaluation& best, const Evaluation& recipe, const std::string& name);
// What a plan must be warned of, whoever chose it: a precision that devices have no units for, tokens that
// experts' buffers drop, sequences beyond learned positions.
std::vector<std::string> warnings_about(const Plan& plan);
// What the answer must be warned of besides: memory that is likelier to be short than was asked for, and what
// its runtime cannot run, unless any runtime was asked for.
std::vector<std::string> warnings_about(const Evaluation& best, double fit_probability, bool any_runtime);

// `ranked`: simulated plans, best first, at least one.
std::string explain(const std::vector<Evaluation>& ranked, const std::vector<Sensitivity>& changes);

}  // namespace orrery::planner
