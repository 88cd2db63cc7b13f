// Whether the plan of least expected regret is the better choice, and whether the probabilities that an
// answer states are what happens: over groups of plans of one job that one source measured on one machine.
#pragma once

#include <string>
#include <vector>

#include "planner/uncertainty/odds.h"

namespace orrery::evidence {

// A plan of a group, predicted by factors that were fitted without the source.
struct Chosen {
  planner::Contender contender;
  double measured_s = 0;
};
struct ChoiceGroup {
  std::string source;
  planner::Spread spread;
  std::vector<Chosen> plans;  // two and more, each once
};

// Prints regret by source, for the plan that is fastest as predicted and for the one of least expected
// regret, and how often what is stated comes true.
void measure_choices(const std::vector<ChoiceGroup>& groups);

}  // namespace orrery::evidence
