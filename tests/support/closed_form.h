// The closed form of many plans beside their simulations.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "planner/closed_form/estimator.h"
#include "planner/evaluation/evaluation.h"
#include "sim/simulator.h"

namespace orrery::test {

// Of plans of one job: no bound is above the simulated step, and half the estimates are within 5% of it.
inline void check_closed_form(const std::vector<Plan>& plans) {
  sim::SimulationOptions options;
  options.keep_timeline = false;
  const auto simulations = sim::simulate_all(plans, options, 2);
  planner::Estimator estimator(plans.front().job);
  std::vector<double> errors;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const planner::StepTimes times = estimator.times(plans[i].choices);
    INFO(planner::describe(plans[i]) << "; estimate " << times.estimate_s << " simulated "
                                     << simulations[i].step_time_s);
    CHECK(times.lower_bound_s <= simulations[i].step_time_s * (1 + 1e-9));
    errors.push_back(std::abs(times.estimate_s / simulations[i].step_time_s - 1));
  }
  std::sort(errors.begin(), errors.end());
  CHECK(errors[errors.size() / 2] < 0.05);
}

}  // namespace orrery::test
