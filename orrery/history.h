// Every validation is remembered: one line of JSON each in user_data_folder()/history.jsonl, only ever
// appended to; and what a machine's calibration learns from them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "orrery/validate.h"
#include "planner/evaluation/refit.h"

namespace orrery {

std::filesystem::path history_file();

// What is remembered of a validation: `plan` (in words), `workload`, `cluster`, `profile`, `ranks`, `steps`,
// `predicted_step_time_s`, `measured_step_time_s`, `relative_error`, `by_kind` (as the validation's JSON has
// it), `calibration` (planner::calibration_of), and where it was measured `machine_pace`.
Json history_entry(const planner::Evaluation& predicted, const planner::Validation& validation, int steps);

// One line: `when` (UTC) and the entry. Several processes may append at once. Returns why it could not be
// written, empty where it was: no error, for the validation was done.
std::string remember(const Json& entry);

struct History {
  std::vector<Json> entries;  // oldest first
  int damaged = 0;            // lines that are none of ours
};
// Empty where nothing was remembered yet.
History read_history();
// Of the steps' relative errors' sizes, over the latest so many; 0 of none.
double median_error(const History& history, std::size_t latest);
constexpr std::size_t kLatest = 10;  // of which a history's summary speaks

// The validations of plans on `cluster` that rest on its calibration as it is.
std::vector<planner::Validated> validations_of(const Cluster& cluster, const History& history);

struct Refitted {
  int validations = 0;
  planner::Refit found;
  Cluster cluster;  // with the slowdowns in its profiles, whose sources say so
};
// Throws NoAnswer where plans left out of it would be predicted no better, or there are too few.
Refitted refit(const Cluster& cluster, const History& history);

}  // namespace orrery
