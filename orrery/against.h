// A plan's prediction beside steps that somebody measured: logs and tables of other software, traces.
#pragma once

#include <string>
#include <vector>

#include "measurements/compare/trace_diff.h"
#include "measurements/measurement.h"
#include "planner/evaluation/evaluation.h"
#include "planner/evaluation/validation.h"

namespace orrery {

struct AgainstRow {
  std::string file;
  int line = 0;  // 0: a trace
  double measured_s = 0;
  double relative_error = 0;
};
struct Against {
  planner::Evaluation predicted;  // simulated, with its interval
  std::vector<AgainstRow> rows;   // measured with this very plan
  // Of another model or plan, or unreadable: why.
  std::vector<measurements::Ignored> ignored;
  double measured_s = 0;  // median of the rows
  // Where there are traces of this plan: largest difference first ("at once": by how much less the others
  // take because they overlap), and in words. Of how many ranks' traces.
  std::vector<planner::KindComparison> by_kind;
  std::string explanation;
  int traced_ranks = 0;
  double waited_s = 0;  // for peers, in collectives: not in theirs, but in "idle" where nothing hid it
  double relative_error() const { return (predicted.step_time_s() - measured_s) / measured_s; }
};
// Throws UserError where no file holds a step of this plan, and where measurements::read does.
Against against(const Plan& plan, const std::vector<std::string>& files);

// Two traces, or two jobs' traces of several ranks, beside each other. Each is a trace, or a folder with
// those of one job's ranks. Throws UserError where one holds none.
measurements::TraceDiff trace_diff(const std::string& a, const std::string& b);

}  // namespace orrery
