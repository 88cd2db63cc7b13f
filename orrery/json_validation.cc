// Predicted beside measured, as JSON.
#include "orrery/json.h"

namespace orrery {

using namespace planner;

namespace {

Json to_json(const std::vector<KindComparison>& by_kind) {
  Json kinds = Json::array();
  for (const KindComparison& kind : by_kind) {
    Json row = {{"kind", kind.kind}, {"predicted_s", kind.predicted_s}, {"measured_s", kind.measured_s}};
    if (kind.measured_s > 0) row["relative_error"] = (kind.predicted_s - kind.measured_s) / kind.measured_s;
    kinds.push_back(std::move(row));
  }
  return kinds;
}

}  // namespace

Json to_json(const Validation& validation) {
  Json json = {
      {"predicted_step_time_s", validation.predicted_step_time_s},
      {"measured_step_time_s", validation.measured_step_time_s},
      {"relative_error", validation.relative_error()},
      {"by_kind", to_json(validation.by_kind)},
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
  Json json = to_json(*predicted.plan.job);
  json.update(to_json(validation));
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
  Json json = to_json(*against.predicted.plan.job);
  json.update({{"predicted_step_time_s", against.predicted.step_time_s()},
               {"measured_step_time_s", against.measured_s},
               {"relative_error", against.relative_error()},
               {"by_kind", to_json(against.by_kind)}});
  if (against.traced_ranks > 0)
    json.update({{"explanation", against.explanation},
                 {"traced_ranks", against.traced_ranks},
                 {"waited_s", against.waited_s}});
  if (against.predicted.interval) json.update(to_json(*against.predicted.interval));
  json.update({{"rows", rows}, {"ignored", ignored}});
  return json;
}

Json to_json(const measurements::TraceDiff& diff) {
  const auto rows_of = [](const std::vector<measurements::DiffRow>& rows) {
    Json all = Json::array();
    for (const measurements::DiffRow& row : rows)
      all.push_back({{"stream", row.stream},
                     {"kind", row.kind},
                     {"a_s", row.a.seconds},
                     {"b_s", row.b.seconds},
                     {"difference_s", row.b.seconds - row.a.seconds},
                     {"a_count", row.a.count},
                     {"b_count", row.b.count}});
    return all;
  };
  const auto times_of = [](const auto& of) {
    return Json{{"a_s", of.a_s}, {"b_s", of.b_s}, {"a_idle_s", of.a_idle_s}, {"b_idle_s", of.b_idle_s}};
  };
  Json steps = Json::array();
  for (const measurements::DiffStep& step : diff.steps) {
    Json one = {{"a_step", step.a}, {"b_step", step.b}};
    one.update(times_of(step));
    one["rows"] = rows_of(step.rows);
    steps.push_back(std::move(one));
  }
  Json json = times_of(diff);
  json.update({{"relative_difference", diff.relative_difference()},
               {"explanation", measurements::explain(diff)},
               {"aligned", diff.aligned},
               {"ranks", diff.ranks},
               {"rows", rows_of(diff.rows)},
               {"steps", steps},
               {"left_out", diff.left_out}});
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
