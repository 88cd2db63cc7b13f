// Two sets of traces beside each other, step by step, stream by stream and kind by kind.
#pragma once

#include <string>
#include <vector>

#include "measurements/measurement.h"
#include "planner/evaluation/validation.h"

namespace orrery::measurements {

// Mean over the ranks that were compared; count: likewise.
struct Side {
  double seconds = 0, count = 0;
};
struct DiffRow {
  std::string stream, kind;
  Side a, b;
};
struct DiffStep {
  std::int64_t a = 0, b = 0;  // their numbers
  double a_s = 0, b_s = 0;
  double a_idle_s = 0, b_idle_s = 0;
  std::vector<DiffRow> rows;  // largest difference first
};
struct TraceDiff {
  // "streams by name", "streams by what runs on them", "by what all traces tell": how finely they could be
  // aligned.
  std::string aligned;
  std::vector<int> ranks;       // compared; empty: one of each, whatever their numbers
  std::vector<DiffStep> steps;  // the first with the first, and so on
  std::vector<DiffRow> rows;    // mean over the steps, largest difference first
  double a_s = 0, b_s = 0, a_idle_s = 0, b_idle_s = 0;  // means over the steps
  std::vector<std::string> left_out;
  // Over all streams, and "idle": a as predicted, b as measured; largest difference first.
  std::vector<planner::KindComparison> by_kind() const;
  double relative_difference() const { return (b_s - a_s) / a_s; }
};
// Throws UserError where one of the two holds nothing that could be compared.
TraceDiff diff_of(const std::vector<RankTrace>& a, const std::vector<RankTrace>& b);
// In words: by how much b's step differs, and the three kinds that explain most.
std::string explain(const TraceDiff& diff);

}  // namespace orrery::measurements
