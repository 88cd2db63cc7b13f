#include "orrery/history.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <ctime>
#include <initializer_list>
#include <sstream>

#include "base/error.h"
#include "base/file.h"
#include "base/statistics.h"
#include "orrery/json.h"

namespace orrery {

std::filesystem::path history_file() {
  return user_data_folder() / "history.jsonl";
}

Json history_entry(const planner::Evaluation& predicted, const planner::Validation& validation, int steps) {
  const Job& job = *predicted.plan.job;
  Json json = to_json(validation);
  Json entry = {{"plan", planner::describe(predicted.plan)},
                {"workload", job.workload.name},
                {"cluster", job.cluster.name},
                {"profile", profile_of(job.cluster)},
                {"ranks", predicted.plan.choices.world()},
                {"steps", steps},
                {"predicted_step_time_s", validation.predicted_step_time_s},
                {"measured_step_time_s", validation.measured_step_time_s},
                {"relative_error", validation.relative_error()},
                {"by_kind", std::move(json["by_kind"])},
                {"calibration", planner::calibration_of(job.cluster)}};
  if (json.contains("machine_pace")) entry["machine_pace"] = std::move(json["machine_pace"]);
  return entry;
}

std::string remember(const Json& entry) {
  Json line = {{"when", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)))}};
  line.update(entry);
  const std::string text = line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  std::error_code code;
  std::filesystem::create_directories(history_file().parent_path(), code);
  const int file = open(history_file().c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  // One write: lines of several processes never mix.
  const bool written =
      file >= 0 && write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const std::string failure = written ? std::string()
                                      : fmt::format("{} cannot be written ({})", history_file().string(),
                                                    code ? code.message() : std::strerror(errno));
  if (file >= 0) close(file);
  return failure;
}

namespace {

// An object whose members of these names are all of a kind.
bool has(const Json& of, bool (Json::*is)() const, std::initializer_list<const char*> names) {
  return of.is_object() && std::all_of(names.begin(), names.end(), [&](const char* name) {
           return of.contains(name) && (of[name].*is)();
         });
}

// A line that validate wrote.
bool is_validation(const Json& entry) {
  if (!has(entry, &Json::is_number, {"predicted_step_time_s", "measured_step_time_s", "relative_error"}) ||
      !has(entry, &Json::is_string, {"when", "plan", "workload", "cluster"}))
    return false;
  const Json kinds = entry.value("by_kind", Json::array());
  return kinds.is_array() && std::all_of(kinds.begin(), kinds.end(), [](const Json& kind) {
           return has(kind, &Json::is_string, {"kind"}) &&
                  has(kind, &Json::is_number, {"predicted_s", "measured_s"});
         });
}

}  // namespace

History read_history() {
  History history;
  std::error_code code;
  if (!std::filesystem::exists(history_file(), code)) return history;
  std::istringstream lines(read_file(history_file()));
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) continue;
    Json entry;
    try {
      entry = parse_json(line, history_file().string());
    } catch (const UserError&) {  // cut short by a full disk, or written by hand
    }
    if (is_validation(entry))
      history.entries.push_back(std::move(entry));
    else
      ++history.damaged;
  }
  return history;
}

double median_error(const History& history, std::size_t latest) {
  const auto& entries = history.entries;
  std::vector<double> errors;
  for (std::size_t i = entries.size() - std::min(latest, entries.size()); i < entries.size(); ++i)
    errors.push_back(std::abs(entries[i].at("relative_error").get<double>()));
  return median(errors);
}

std::vector<planner::Validated> validations_of(const Cluster& cluster, const History& history) {
  const std::string calibration = planner::calibration_of(cluster);
  std::vector<planner::Validated> validations;
  for (const Json& entry : history.entries) {
    if (entry.at("cluster") != cluster.name || entry.value("calibration", Json()) != calibration) continue;
    planner::Validated validated{
        entry.at("predicted_step_time_s").get<double>(), entry.at("measured_step_time_s").get<double>(), {}};
    for (const Json& kind : entry.value("by_kind", Json::array()))
      validated.by_kind.push_back({kind.at("kind").get<std::string>(), kind.at("predicted_s").get<double>(),
                                   kind.at("measured_s").get<double>()});
    validations.push_back(std::move(validated));
  }
  return validations;
}

Refitted refit(const Cluster& cluster, const History& history) {
  const auto validations = validations_of(cluster, history);
  Refitted result{static_cast<int>(validations.size()), planner::refit(validations), cluster};
  const planner::Refit& found = result.found;
  if (found.left_out_median_error >= found.median_error)
    throw NoAnswer(fmt::format(
        "the calibration stays as it is: plans left out of a refit to the {} others would be {:.1f}% "
        "off in the median, and are {:.1f}% off now",
        result.validations - 1, 100 * found.left_out_median_error, 100 * found.median_error));
  result.cluster = planner::slowed(cluster, found.slowdown);
  const std::string record = fmt::format(
      "; refitted to {} validations: computation takes {:.3f} times as long, communication {:.3f}",
      result.validations, found.slowdown.computation, found.slowdown.communication);
  for (DeviceProfile& device : result.cluster.profiles) device.source += record;
  result.cluster.communication.source += record;
  return result;
}

}  // namespace orrery
