#include "cli/compare/compare_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/format.h"
#include "cli/output.h"
#include "cli/plan_file.h"

namespace orrery::cli {
namespace {

using namespace comparison;

std::string rate(double value) {
  return value >= 100 ? fmt::format("{:.0f}", value) : fmt::format("{:.3g}", value);
}

std::string percent(double share) {
  return fmt::format("{:.1f}%", 100 * share);
}

std::string headline(const CompareRequest& request) {
  const Job& job = *request.question.job;
  return fmt::format("{} on {}: {} samples a device and step, {}, {}, runtime {}\n", job.workload.name,
                     job.cluster.name, job.training.global_batch / job.cluster.devices(),
                     name_of(job.training.precision), name_of(job.training.optimizer), job.runtime.name);
}

// Throughput and scaling efficiency by devices.
std::string scaling_table(const Comparison& comparison) {
  std::vector<std::string> head = {"samples/s on devices"};
  for (const int size : comparison.sizes) head.push_back(std::to_string(size));
  head.emplace_back("scaling");
  std::vector<std::vector<std::string>> rows;
  for (const Row& row : comparison.rows) {
    std::vector<std::string>& cells = rows.emplace_back();
    cells.push_back(row.strategy.name);
    for (const Way& way : row.ways) cells.push_back(way.possible() ? rate(way.samples_per_s) : "-");
    cells.push_back(row.whole().possible() ? percent(row.whole().efficiency) : "-");
  }
  return table(head, rows);
}

std::string step_table(const Comparison& comparison) {
  const std::vector<std::string> head = {"a step on all", "step",          "compute",
                                         "exposed",       "waiting, mean", "worst",
                                         "sent a device", "memory",        "by"};
  std::vector<std::vector<std::string>> rows;
  for (const Row& row : comparison.rows) {
    const Way& way = row.whole();
    if (!way.possible()) continue;
    const auto worst = static_cast<std::size_t>(way.worst_rank());
    rows.push_back(
        {row.strategy.name, human_seconds(way.step_s), human_seconds(way.mean_of(&RankTimes::compute_s)),
         human_seconds(way.mean_of(&RankTimes::exposed_s)), human_seconds(way.mean_of(&RankTimes::waiting_s)),
         fmt::format("{} (rank {})", human_seconds(way.ranks[worst].waiting_s), worst),
         human_bytes(way.wire_bytes), human_bytes(way.memory.total) + (row.fits() ? "" : " too much"),
         std::string(comparison::name_of(way.found_by))});
  }
  return table(head, rows, {.optional = {"by", "sent a device"}});
}

std::string refusals(const Comparison& comparison) {
  std::string text;
  for (const Row& row : comparison.rows)
    if (!row.whole().possible())
      text += fmt::format("{} does not run on all: {}\n", row.strategy.name, row.whole().refusal);
  return text;
}

std::string trouble_table(const CompareRequest& request, const Comparison& comparison) {
  const auto any = std::find_if(comparison.rows.begin(), comparison.rows.end(),
                                [](const Row& row) { return row.ordeal.has_value(); });
  if (any == comparison.rows.end()) return {};
  const OrdealOptions& options = request.options;
  std::string text = fmt::format(
      "\nUnder {}, over {} (seed {}; a checkpoint every {}, {} to start again, what died is replaced after "
      "{}):\n",
      fmt::join(request.troubles, ", "), human_seconds(any->ordeal->horizon_s), options.seed,
      human_seconds(options.checkpoint_every_s), human_seconds(options.restart_s),
      human_seconds(options.replace_s));
  std::vector<std::vector<std::string>> rows;
  for (const Row& row : comparison.rows) {
    if (!row.ordeal) continue;
    const Ordeal& o = *row.ordeal;
    rows.push_back({row.strategy.name, rate(o.samples_per_s()),
                    percent(o.samples_per_s() / row.whole().samples_per_s), percent(o.mean_waiting),
                    percent(o.worst_waiting), human_seconds(o.stood_s), fmt::format("{:.0f}", o.lost_samples),
                    fmt::format("{:.0f}", o.dropped), std::to_string(o.workers)});
  }
  text += table({"under trouble", "samples/s", "of healthy", "waiting, mean", "worst", "stood", "lost",
                 "dropped", "workers"},
                rows);
  for (const Row& row : comparison.rows)
    if (row.ordeal)
      for (const std::string& line : row.ordeal->story)
        text += fmt::format("{}, {}\n", row.strategy.name, line);
  return text;
}

std::string balance_table(const Comparison& comparison) {
  if (comparison.balances.empty()) return {};
  std::vector<std::vector<std::string>> rows;
  for (const Balance& b : comparison.balances) {
    const BalanceStep& first = b.steps.front();
    const BalanceStep& last = b.steps.back();
    rows.push_back({std::string(comparison::name_of(b.shares)), human_seconds(first.std_s),
                    fmt::format("{:.2f}", first.max_over_mean), human_seconds(b.std_s),
                    fmt::format("{:.2f}", b.max_over_mean), human_seconds(b.longest_s),
                    fmt::format("{} to {}", *std::min_element(last.samples.begin(), last.samples.end()),
                                *std::max_element(last.samples.begin(), last.samples.end()))});
  }
  return fmt::format(
             "\nBusy times of a step's samples, dealt in these ways (first step, then the mean of the {} "
             "after it):\n",
             comparison.balances.front().steps.size() - 1) +
         table(
             {"shares", "std, first", "max/mean", "std, then", "max/mean", "longest", "samples in the last"},
             rows);
}

// Of the one that suits, else of the first that runs.
std::string sureness(const Comparison& comparison) {
  const Row* of = comparison.best ? &comparison.rows[*comparison.best] : nullptr;
  for (const Row& row : comparison.rows)
    if (of == nullptr && row.interval) of = &row;
  if (of == nullptr || !of->interval) return {};
  return fmt::format("90% of steps of {} on all take {} to {}; {}\n", of->strategy.name,
                     human_seconds(of->interval->step_time_s.low),
                     human_seconds(of->interval->step_time_s.high),
                     what_it_rests_on(of->interval->rests_on, of->interval->narrowed_by));
}

}  // namespace

std::string text_of(const CompareRequest& request, const Comparison& comparison) {
  return headline(request) + comparison.verdict + "\n" + sureness(comparison) + "\n" +
         scaling_table(comparison) + "\n" + step_table(comparison) + refusals(comparison) +
         trouble_table(request, comparison) + balance_table(comparison);
}

}  // namespace orrery::cli
