// The Pareto front of step time, cost, energy and memory: plans that no other betters in one of them without
// losing in another.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "planner/closed_form/estimator.h"
#include "planner/evaluation/evaluation.h"
#include "planner/search/search.h"

namespace orrery::planner {

// Of one step; less is better in all. Cost and energy are 0 where the cluster states no price or no power.
struct Figures {
  double step_s = 0;
  double cost_usd = 0;
  double energy_j = 0;
  double memory_bytes = 0;  // of the fullest device: the rest of it is headroom
};
// No worse in any and better in one.
bool dominates(const Figures& a, const Figures& b);
// Those that no other dominates (of equal ones the first), by rising step time, then memory.
std::vector<std::size_t> pareto_front(const std::vector<Figures>& figures);

// Of a simulated plan.
Figures figures_of(const Evaluation& evaluation);

// What the closed form says of the plans with the least layout bounds, bucket sizes and overlap as the
// runtime has them.
struct Survey {
  std::vector<Choices> front;    // exact, by the closed form, among the plans looked into
  std::int64_t looked_into = 0;  // that fit
  std::int64_t space = 0;        // plans of the space, all bucket sizes and overlaps counted
  // No plan of a layout that was not looked into takes less time; infinity where all were.
  double beyond_s = 0;
};
// Looks into families, least bound first, until `most` plans that fit were seen.
Survey survey(const std::shared_ptr<const Job>& job, const Pins& pins, Estimator& estimator,
              std::int64_t most, double fillable = 1);

}  // namespace orrery::planner
