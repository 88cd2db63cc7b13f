// A calibrated profile made better by what was validated with it: how much slower than predicted computation
// and communication were, over all plans, becomes part of the profile.
#pragma once

#include <string>
#include <vector>

#include "planner/evaluation/validation.h"
#include "topologies/cluster.h"

namespace orrery::planner {

// One `validate` of a plan.
struct Validated {
  double predicted_step_time_s = 0;
  double measured_step_time_s = 0;
  std::vector<KindComparison> by_kind;
};

// Seconds that a prediction is multiplied by.
struct Slowdown {
  double computation = 1;
  double communication = 1;
};

struct Refit {
  Slowdown slowdown;
  // Median of the steps' relative errors: as predicted, and with factors from all other validations.
  double median_error = 0;
  double left_out_median_error = 0;
};

// The median over validations of measured beside predicted seconds, of each of the two. Waiting for others is
// part of communication on both clocks. A step moves as the seconds of its kinds together do. Throws NoAnswer
// where there are fewer than three validations.
Refit refit(const std::vector<Validated>& validations);

// The same cluster with devices and links so much slower. Nothing gets better than its links.
Cluster slowed(Cluster cluster, const Slowdown& slowdown);

// What names the calibration that predictions on a cluster rest on.
std::string calibration_of(const Cluster& cluster);

}  // namespace orrery::planner
