// A what-if as JSON and as CSV.
#include <fmt/format.h>

#include "base/csv.h"
#include "planner/runs/whatif.h"

namespace orrery::planner::whatif {
namespace {

constexpr double kSecondsPerDay = 86400;

// A number where it is written as JSON writes one.
Json value_json(const std::string& text) {
  const Json parsed = Json::parse(text, nullptr, false);
  return parsed.is_number() ? parsed : Json(text);
}

void add_bill(Json& point, const Bill& bill, const Goal& goal) {
  Json whole = {{goal.asked ? "time_to_train_s" : "time_s", bill.time_s}};
  if (goal.asked) whole["steps"] = static_cast<std::int64_t>(bill.steps);
  whole["device_hours"] = bill.device_hours;
  if (bill.cost_usd) whole["cost_usd"] = *bill.cost_usd;
  if (bill.energy_j) whole["energy_j"] = *bill.energy_j;
  if (goal.asked)
    point.update(whole);
  else
    point[fmt::format("per_1e9_{}", goal.unit())] = whole;
  Json step = Json::object();
  if (bill.cost_usd) step["cost_usd"] = *bill.cost_usd / bill.steps;
  if (bill.energy_j) step["energy_j"] = *bill.energy_j / bill.steps;
  point["per_step"] = step;
}

Json point_json(const Result& result, std::size_t i) {
  const Point& at = result.points[i];
  Json point = {{"vary", Json::object()}};
  for (const auto& [key, value] : at.vary) point["vary"][key] = value_json(value);
  point.update(job_json(*at.job));
  const Answer& answer = result.answers[i];
  if (answer.best) {
    point["candidates"] = answer.best->candidates;
    point["proven"] = answer.best->proven;
    point["gap"] = answer.best->gap;
    point["plan"] = answer.best->words;
    point.update(answer.best->plan);
    add_bill(point, *result.bills[i], result.goal);
    if (!result.efficiency.empty()) point["scaling_efficiency"] = *result.efficiency[i];
  } else {
    point["refusal"] = answer.refusal;
  }
  point["meets"] = result.bills[i] && meets(*result.bills[i], result.limits);
  return point;
}

Json index_json(const std::optional<std::size_t>& index) {
  return index ? Json(*index) : Json();
}

std::vector<std::string> csv_row(const Result& result, std::size_t i) {
  const Point& point = result.points[i];
  const auto text = [](const auto& value) { return fmt::format("{}", value); };
  const auto known = [&](const std::optional<double>& value) { return value ? text(*value) : std::string(); };
  std::vector<std::string> row;
  for (const auto& [key, value] : point.vary) row.push_back(value);
  for (const std::string& fact :
       {point.job->workload.name, point.job->cluster.name, text(point.job->cluster.nodes()),
        text(point.job->cluster.devices()), point.job->runtime.name, text(point.job->training.global_batch),
        text(point.job->training.seq_len)})
    row.push_back(fact);
  const Answer& answer = result.answers[i];
  const Bill bill = result.bills[i].value_or(Bill{});
  std::vector<std::string> found(12);
  if (answer.best) {
    const Planned& best = *answer.best;
    found = {best.words};
    for (const char* field : {"step_time_s", "samples_per_s", "tokens_per_s", "mfu"})
      found.push_back(text(best.figure(field)));
    found.push_back(text(best.plan.at("memory_bytes").at("total").get<double>()));
    for (const std::string& figure : {text(bill.steps), text(bill.time_s), text(bill.device_hours),
                                      known(bill.cost_usd), known(bill.energy_j), text(best.gap)})
      found.push_back(figure);
  }
  row.insert(row.end(), found.begin(), found.end());
  if (!result.efficiency.empty()) row.push_back(known(result.efficiency[i]));
  const bool met = result.bills[i] && meets(bill, result.limits);
  for (const bool mark :
       {met, result.verdict.cheapest == i, result.verdict.fastest == i, result.verdict.on_front(i)})
    row.emplace_back(mark ? "1" : "0");
  row.push_back(answer.refusal);
  return row;
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
  json["cheapest"] = index_json(result.verdict.cheapest);
  json["fastest"] = index_json(result.verdict.fastest);
  json["front"] = result.verdict.front;
  json["points"] = Json::array();
  for (std::size_t i = 0; i < result.points.size(); ++i) json["points"].push_back(point_json(result, i));
  return json;
}

std::string to_csv(const Result& result) {
  std::vector<std::string> head;
  for (const Varied& key : result.varied) head.push_back(key.key);
  for (const char* column :
       {"workload_name", "cluster_name", "cluster_nodes", "devices", "runtime_name", "global_batch",
        "seq_len", "plan", "step_time_s", "samples_per_s", "tokens_per_s", "mfu", "memory_bytes"})
    head.emplace_back(column);
  const std::string of = result.goal.asked ? "" : fmt::format("_per_1e9_{}", result.goal.unit());
  head.push_back("steps" + of);
  head.push_back(result.goal.asked ? "time_to_train_s" : "time_s" + of);
  for (const char* column : {"device_hours", "cost_usd", "energy_j"}) head.push_back(column + of);
  head.emplace_back("gap");
  if (!result.efficiency.empty()) head.emplace_back("scaling_efficiency");
  for (const char* column : {"meets", "cheapest", "fastest", "front", "refusal"}) head.emplace_back(column);
  std::string text = csv_line(head);
  for (std::size_t i = 0; i < result.points.size(); ++i) text += csv_line(csv_row(result, i));
  return text;
}

}  // namespace orrery::planner::whatif
