// How sure a prediction is: the interval in which 90% of what happens lies, what that rests on, and what
// would narrow it most.
#pragma once

#include <string>
#include <vector>

#include "planner/evaluation/evaluation.h"

namespace orrery::planner {

// Fills `interval`. The closed form says how the step answers to each factor (planner/uncertainty/outlook.h);
// where the step was simulated, the interval lies around that.
void add_interval(Evaluation* evaluation);

// The same of one of several plans of a job, whose response `outlook` gave.
void add_interval(Outlook* outlook, const Response& response, Evaluation* evaluation);

// The same as kDraws equally likely factors on the step's time, for whoever combines it with other chances.
struct StepDraws {
  std::vector<double> factors;
  RestsOn rests_on;
  std::string narrowed_by;
};
StepDraws step_draws(const Plan& plan);

// For people: "rests on: runtime assumed, device fitted, network from its datasheet".
std::string what_it_rests_on(const RestsOn& rests_on);
std::string what_it_rests_on(Foundation foundation);  // "fitted", "from its datasheet"

}  // namespace orrery::planner
