// Every `validate` is remembered: one line of JSON each in user_data_folder()/history.jsonl, only ever
// appended to.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "planner/evaluation/refit.h"

namespace orrery::cli {

std::filesystem::path history_file();

// One line: `when` (UTC), `plan` (in words), `workload`, `cluster`, `profile`, `ranks`, `steps`,
// `predicted_step_time_s`, `measured_step_time_s`, `relative_error`, `by_kind` (as validate's JSON has it),
// `calibration` (planner::calibration_of). Several processes may append at once. A folder that cannot be
// written is said on stderr and is no error: the validation was done.
void remember(const Json& entry);

struct History {
  std::vector<Json> entries;  // oldest first
  int damaged = 0;            // lines that are none of ours
};
// Empty where nothing was remembered yet.
History read_history();

// The validations of plans on `cluster` that rest on its calibration as it is.
std::vector<planner::Validated> validations_of(const Cluster& cluster, const History& history);

}  // namespace orrery::cli
