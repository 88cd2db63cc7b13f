// A plan's prediction beside steps that somebody measured with other software: its logs and tables.
#pragma once

#include <string>
#include <vector>

#include "measurements/measurement.h"
#include "planner/evaluation/evaluation.h"

namespace orrery {

struct AgainstRow {
  std::string file;
  int line = 0;
  double measured_s = 0;
  double relative_error = 0;
};
struct Against {
  planner::Evaluation predicted;  // simulated, with its interval
  std::vector<AgainstRow> rows;   // measured with this very plan
  // Of another model or plan, or unreadable: why.
  std::vector<measurements::Ignored> ignored;
  double measured_s = 0;  // median of the rows
  double relative_error() const { return (predicted.step_time_s() - measured_s) / measured_s; }
};
// Throws UserError where no file holds a step of this plan, and where measurements::read does.
Against against(const Plan& plan, const std::vector<std::string>& files);

}  // namespace orrery
