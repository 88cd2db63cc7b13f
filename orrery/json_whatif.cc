// A what-if as JSON.
#include <fmt/format.h>

#include "base/units.h"
#include "orrery/json.h"

namespace orrery {
using namespace planner::whatif;
namespace {

// A number where it is written as JSON writes one.
Json value_json(const std::string& text) {
  const Json parsed = Json::parse(text, nullptr, false);
  return parsed.is_number() ? parsed : Json(text);
}

void add_range(const std::string& name, double value, const Total& total, Json& json) {
  json[name + "_low"] = value * total.of_total.low;
  json[name + "_high"] = value * total.of_total.high;
}

void add_total(Json& point, const Total& total, const Goal& goal) {
  Json whole = {{goal.asked ? "time_to_train_s" : "time_s", total.time_s}};
  if (goal.asked) whole["steps"] = static_cast<std::int64_t>(total.steps);
  whole["device_hours"] = total.device_hours;
  if (total.cost_usd) whole["cost_usd"] = *total.cost_usd;
  if (total.energy_j) whole["energy_j"] = *total.energy_j;
  add_range("days", total.time_s / kSecondsPerDay, total, whole);
  if (total.cost_usd) add_range("usd", *total.cost_usd, total, whole);
  if (total.energy_j) add_range("mwh", *total.energy_j / kJoulesPerMegawattHour, total, whole);
  if (goal.asked)
    point.update(whole);
  else
    point[fmt::format("per_1e9_{}", goal.unit())] = whole;
  Json step = Json::object();
  if (total.cost_usd) step["cost_usd"] = *total.cost_usd / total.steps;
  if (total.energy_j) step["energy_j"] = *total.energy_j / total.steps;
  point["per_step"] = step;
}

Json point_json(const Result& result, std::size_t i) {
  const Point& at = result.points[i];
  Json point = {{"vary", Json::object()}};
  for (const auto& [key, value] : at.vary) point["vary"][key] = value_json(value);
  point.update(to_json(*at.job));
  const Answer& answer = result.answers[i];
  if (answer.best) {
    point["candidates"] = answer.best->candidates;
    point["proven"] = answer.best->proven;
    point["gap"] = answer.best->gap;
    point["plan"] = answer.best->words();
    point.update(to_json(answer.best->evaluation));
    add_total(point, *result.totals[i], result.goal);
    if (!result.efficiency.empty()) point["scaling_efficiency"] = *result.efficiency[i];
  } else {
    point["refusal"] = answer.refusal;
  }
  point["meets"] = result.totals[i] && meets(*result.totals[i], result.limits);
  return point;
}

Json index_json(const std::optional<std::size_t>& index) {
  return index ? Json(*index) : Json();
}

}  // namespace

Json to_json(const Result& result) {
  Json varied = Json::object();
  for (const Varied& key : result.varied) {
    varied[key.key] = Json::array();
    for (const std::string& value : key.values) varied[key.key].push_back(value_json(value));
  }
  Json json = {{"varied", varied}};
  if (result.goal.asked) json[std::string(result.goal.unit())] = result.goal.amount;
  if (result.limits.deadline_s) json["deadline_days"] = *result.limits.deadline_s / kSecondsPerDay;
  if (result.limits.budget_usd) json["budget_usd"] = *result.limits.budget_usd;
  json["search_s"] = result.search_s;
  json["cheapest"] = index_json(result.selection.cheapest);
  json["fastest"] = index_json(result.selection.fastest);
  json["front"] = result.selection.front;
  json["points"] = Json::array();
  for (std::size_t i = 0; i < result.points.size(); ++i) json["points"].push_back(point_json(result, i));
  return json;
}

}  // namespace orrery
