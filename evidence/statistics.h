// Figures of merit of predictions against measurements.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"

namespace orrery::evidence {

struct Judged {
  double predicted = 0;
  double measured = 0;
  std::string group;  // rows that differ only in the plan share it
  std::string plan;
};

struct GroupFigures {
  int groups = 0;          // of two and more distinct plans
  double kendall_tau = 0;  // mean tau-b over groups of three and more
  double regret_mean = 0, regret_max = 0;
};

// Repeats of a plan are averaged. Pairs whose measurements are within 1% count as ties. Regret: how much
// slower, as measured, the plan predicted fastest is than the one measured fastest; of plans predicted alike
// the slowest.
GroupFigures group_figures(const std::vector<Judged>& rows);

// Of signed relative errors: rows, skipped and, where there are any, mape, median_ape, max_ape, bias,
// within_10_percent.
Json error_figures(const std::vector<double>& errors, int skipped);
// These of the rows, and groups, kendall_tau, regret.
Json figures(const std::vector<Judged>& rows, int skipped);

}  // namespace orrery::evidence
