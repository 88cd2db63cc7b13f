// Predicted beside measured: the join of two timelines of the same Programs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "program/plan.h"
#include "program/timeline.h"

namespace orrery::planner {

// Seconds that a rank's instructions of one kind (kind_of) take in a step, mean over the ranks.
struct KindComparison {
  std::string kind;
  double predicted_s = 0;
  double measured_s = 0;
};

// How fast the machine was while it was measured, beside the day on which its profile was (0.8: a fifth
// slower).
struct MachinePace {
  double before = 0;
  double after = 0;
  double least = 0;
  double most = 0;
  double step_time_s = 0;  // measured, as if the machine had kept its calibrated pace
};

// Tokens of the fullest of the ranks that share experts, by the mean: what the others wait for.
struct FullestShare {
  double predicted = 1;
  double measured = 1;
};

struct Validation {
  double predicted_step_time_s = 0;
  double measured_step_time_s = 0;
  std::vector<KindComparison> by_kind;  // largest difference first
  double predicted_bytes = 0;           // of the fullest rank
  double measured_bytes = 0;
  std::optional<MachinePace> pace;
  std::optional<FullestShare> experts;

  double relative_error() const {
    return (predicted_step_time_s - measured_step_time_s) / measured_step_time_s;
  }
  // What is left of it at the machine's pace. Needs `pace`.
  double relative_error_at_pace() const;
};

// Instruction by instruction over the ranks of `programs`. The first measured step warms up caches and is
// left out where there is another. What a rank computes of experts is predicted for the fullest rank
// (OperatorWork::fullest): the share of it that the mean rank waits counts to `expert_comm`, where the clock
// of a run sees it. Throws InternalError where the two are not of the same Programs.
std::vector<KindComparison> join(const Plan& plan, const std::vector<Program>& programs,
                                 const Timeline& predicted, const Timeline& measured);
// As predicted; nothing where no tokens travel to experts.
std::optional<double> fullest_share(const Plan& plan);

// In words: which kinds explain most of the step's error.
std::string explain(const Validation& validation);

}  // namespace orrery::planner
