#include "cli/history.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <sstream>

#include "base/error.h"
#include "base/file.h"

namespace orrery::cli {

std::filesystem::path history_file() {
  return user_data_folder() / "history.jsonl";
}

void remember(const Json& entry) {
  Json line = {{"when", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)))}};
  line.update(entry);
  const std::string text = line.dump() + "\n";
  std::error_code ignored;
  std::filesystem::create_directories(history_file().parent_path(), ignored);
  const int file = open(history_file().c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  // One write: lines of several processes never mix.
  const bool written =
      file >= 0 && write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (!written)
    fmt::print(stderr, "orrery: {} cannot be written ({}): this validation is not remembered\n",
               history_file().string(), std::strerror(errno));
  if (file >= 0) close(file);
}

History read_history() {
  History history;
  std::error_code code;
  if (!std::filesystem::exists(history_file(), code)) return history;
  std::istringstream lines(read_file(history_file()));
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) continue;
    try {
      Json entry = parse_json(line, history_file().string());
      for (const char* number : {"predicted_step_time_s", "measured_step_time_s", "relative_error"})
        if (!entry.is_object() || !entry.contains(number) || !entry[number].is_number())
          throw UserError(history_file().string(), 0, "is no validation", "lines that validate wrote");
      for (const char* text : {"when", "plan", "workload", "cluster"})
        if (!entry.contains(text) || !entry[text].is_string())
          throw UserError(history_file().string(), 0, "is no validation", "lines that validate wrote");
      history.entries.push_back(std::move(entry));
    } catch (const UserError&) {
      ++history.damaged;  // cut short by a full disk, or written by hand
    }
  }
  return history;
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

}  // namespace orrery::cli
