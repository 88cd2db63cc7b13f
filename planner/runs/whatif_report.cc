// A what-if as CSV.
#include <fmt/format.h>

#include "base/csv.h"
#include "base/units.h"
#include "planner/runs/whatif.h"

namespace orrery::planner::whatif {
namespace {

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
  const Total total = result.totals[i].value_or(Total{});
  std::vector<std::string> found(18);
  if (answer.best) {
    const Planned& best = *answer.best;
    const Throughput rate = throughput(best.evaluation);
    found = {best.words()};
    for (const double figure : {best.evaluation.step_time_s(), rate.samples_per_s, rate.tokens_per_s,
                                rate.mfu, best.evaluation.memory.total})
      found.push_back(text(figure));
    for (const std::string& figure : {text(total.steps), text(total.time_s), text(total.device_hours),
                                      known(total.cost_usd), known(total.energy_j), text(best.gap)})
      found.push_back(figure);
    const std::optional<double> days = total.time_s / kSecondsPerDay;
    for (const std::optional<double>& figure :
         {std::optional(best.evaluation.step_time_s()), days, total.cost_usd})
      for (const double factor : {total.of_total.low, total.of_total.high})
        found.push_back(figure ? text(*figure * factor) : "");
  }
  row.insert(row.end(), found.begin(), found.end());
  if (!result.efficiency.empty()) row.push_back(known(result.efficiency[i]));
  const bool met = result.totals[i] && meets(total, result.limits);
  for (const bool mark :
       {met, result.selection.cheapest == i, result.selection.fastest == i, result.selection.on_front(i)})
    row.emplace_back(mark ? "1" : "0");
  row.push_back(answer.refusal);
  return row;
}

}  // namespace

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
  for (const char* column : {"step_time_low_s", "step_time_high_s"}) head.emplace_back(column);
  for (const char* column : {"days_low", "days_high", "usd_low", "usd_high"}) head.push_back(column + of);
  if (!result.efficiency.empty()) head.emplace_back("scaling_efficiency");
  for (const char* column : {"meets", "cheapest", "fastest", "front", "refusal"}) head.emplace_back(column);
  std::string text = csv_line(head);
  for (std::size_t i = 0; i < result.points.size(); ++i) text += csv_line(csv_row(result, i));
  return text;
}

}  // namespace orrery::planner::whatif
