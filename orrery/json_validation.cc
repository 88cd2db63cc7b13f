// Predicted beside measured, as JSON.
#include "orrery/json.h"

namespace orrery {

using namespace planner;

Json to_json(const Validation& validation) {
  Json kinds = Json::array();
  for (const KindComparison& kind : validation.by_kind) {
    Json row = {{"kind", kind.kind}, {"predicted_s", kind.predicted_s}, {"measured_s", kind.measured_s}};
    if (kind.measured_s > 0) row["relative_error"] = (kind.predicted_s - kind.measured_s) / kind.measured_s;
    kinds.push_back(std::move(row));
  }
  Json json = {
      {"predicted_step_time_s", validation.predicted_step_time_s},
      {"measured_step_time_s", validation.measured_step_time_s},
      {"relative_error", validation.relative_error()},
      {"by_kind", kinds},
      {"memory",
       {{"predicted_bytes", validation.predicted_bytes}, {"measured_bytes", validation.measured_bytes}}}};
  if (const auto& pace = validation.pace)
    json["machine_pace"] = {{"before", pace->before},
                            {"after", pace->after},
                            {"least", pace->least},
                            {"most", pace->most},
                            {"step_time_s", pace->step_time_s},
                            {"relative_error", validation.relative_error_at_pace()}};
  return json;
}

Json to_json(const Evaluation& predicted, const Measurement& measured, const Validation& validation,
             int steps) {
  Json json = to_json(validation);
  json["ranks"] = predicted.plan.choices.world();
  json["steps"] = steps;
  json["profile"] = profile_of(predicted.plan.job->cluster);
  json["measured"] = {
      {"median", measured.step_median_s}, {"min", measured.step_least_s}, {"max", measured.step_most_s}};
  return json;
}

Json to_json(const Against& against) {
  Json rows = Json::array(), ignored = Json::array();
  for (const AgainstRow& row : against.rows)
    rows.push_back({{"file", row.file},
                    {"line", row.line},
                    {"measured_s", row.measured_s},
                    {"relative_error", row.relative_error}});
  for (const auto& one : against.ignored)
    ignored.push_back({{"file", one.file}, {"line", one.line}, {"why", one.why}, {"rows", one.rows}});
  // Logs and tables say nothing of kinds.
  Json json = {{"predicted_step_time_s", against.predicted.step_time_s()},
               {"measured_step_time_s", against.measured_s},
               {"relative_error", against.relative_error()},
               {"by_kind", Json::array()}};
  if (against.predicted.interval) json.update(to_json(*against.predicted.interval));
  json.update({{"rows", rows}, {"ignored", ignored}});
  return json;
}

Json to_json(const History& history) {
  return {{"entries", history.entries},
          {"median_error", median_error(history, history.entries.size())},
          {"latest_median_error", median_error(history, kLatest)}};
}

Json to_json(const Refitted& refitted) {
  const Refit& found = refitted.found;
  return {{"validations", refitted.validations},
          {"computation", found.slowdown.computation},
          {"communication", found.slowdown.communication},
          {"median_error", found.median_error},
          {"left_out_median_error", found.left_out_median_error}};
}

}  // namespace orrery
