// From a row of a table of published training steps to the plan that was run. docs/accuracy.md lists the
// rules.
#pragma once

#include <optional>
#include <string>

#include "base/csv.h"
#include "program/plan.h"

namespace orrery::planner {

struct PublishedStep {
  Plan plan;
  double measured_s = 0;          // 0: the row has none
  double measured_bytes = 0;      // of the fullest device; 0: the row has none
  bool recompute_stated = false;  // else it may have recomputed anything
  bool sharding_stated = false;
  bool out_of_memory = false;  // the row says so; it has neither of the two
  std::string group;           // contract: rows that differ only in the plan share it
  std::string label;           // the plan, for people and for telling plans apart
};

// Why a row cannot be predicted.
struct Unreadable {
  std::string why;
  bool incomplete = false;  // a needed column is empty
};

// Throws Unreadable.
PublishedStep read_published_step(const CsvTable& table, const CsvRow& row);

}  // namespace orrery::planner
