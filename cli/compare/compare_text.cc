#include "cli/compare/compare_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "base/format.h"
#include "base/parse.h"
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
  return fmt::format("{} on {}: {} per device and step, {}, {}, runtime {}\n", job.workload.name,
                     job.cluster.name, counted(job.training.global_batch / job.cluster.devices(), "sample"),
                     name_of(job.training.precision), name_of(job.training.optimizer), job.runtime.name);
}

// One figure of every strategy by devices.
std::string size_table(const Comparison& comparison, const std::string& what,
                       const std::function<std::string(const Way&)>& cell) {
  std::vector<std::string> head = {what};
  for (const int size : comparison.sizes) head.push_back(std::to_string(size));
  std::vector<std::vector<std::string>> rows;
  for (const Row& row : comparison.rows) {
    std::vector<std::string>& cells = rows.emplace_back();
    cells.push_back(row.strategy.name);
    for (const Way& way : row.ways) cells.push_back(way.possible() ? cell(way) : "-");
  }
  return table(head, rows);
}

std::string scaling_tables(const Comparison& comparison) {
  const auto seconds = [](double RankTimes::*part) {
    return [part](const Way& way) { return human_seconds(way.mean_of(part)); };
  };
  const std::vector<std::pair<std::string, std::function<std::string(const Way&)>>> figures = {
      {"samples/s by devices", [](const Way& way) { return rate(way.samples_per_s); }},
      {"scaling efficiency", [](const Way& way) { return percent(way.efficiency); }},
      {"exposed, mean of ranks", seconds(&RankTimes::exposed_s)},
      {"waiting, mean of ranks", seconds(&RankTimes::waiting_s)},
      {"sent per device", [](const Way& way) { return human_bytes(way.wire_bytes); }},
      {"memory per device", [](const Way& way) { return human_bytes(way.memory.total); }}};
  std::string text;
  const std::size_t shown = layout().verbose ? figures.size() : 1;
  const auto runs = [](const Row& row) {
    return std::any_of(row.ways.begin(), row.ways.end(), [](const Way& way) { return way.possible(); });
  };
  if (std::none_of(comparison.rows.begin(), comparison.rows.end(), runs)) return text;
  for (std::size_t i = 0; i < shown; ++i)
    text += size_table(comparison, figures[i].first, figures[i].second) + "\n";
  return text;
}

// "0-2, 4-15: 256 ms; 3: 0": ranks that wait as long, to the digits that are shown; of many the first ones.
std::string waiting_of(const Way& way) {
  constexpr std::size_t kMostGroups = 6;
  std::vector<std::pair<std::string, std::vector<std::size_t>>> groups;
  for (std::size_t rank = 0; rank < way.ranks.size(); ++rank) {
    const std::string shown = human_seconds(way.ranks[rank].waiting_s);
    auto group =
        std::find_if(groups.begin(), groups.end(), [&](const auto& one) { return one.first == shown; });
    if (group == groups.end()) group = groups.insert(group, {shown, {}});
    group->second.push_back(rank);
  }
  std::string text;
  for (std::size_t g = 0; g < std::min(groups.size(), kMostGroups); ++g) {
    const auto& [shown, ranks] = groups[g];
    std::vector<std::string> stretches;
    for (std::size_t i = 0; i < ranks.size();) {
      std::size_t end = i + 1;
      while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
      stretches.push_back(end == i + 1 ? fmt::format("{}", ranks[i])
                                       : fmt::format("{}-{}", ranks[i], ranks[end - 1]));
      i = end;
    }
    text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", fmt::join(stretches, ", "), shown);
  }
  if (groups.size() > kMostGroups)
    text += fmt::format("; {} more groups in --json", groups.size() - kMostGroups);
  return text;
}

// Of every rank, in a step with what is always wrong, else in a healthy one.
std::string waiting_list(const Comparison& comparison) {
  std::vector<std::pair<std::string, std::string>> lines;
  std::size_t widest = 0;
  for (const Row& row : comparison.rows) {
    const Way& way = row.troubled && row.troubled->possible() ? *row.troubled : row.whole();
    if (!way.possible()) continue;
    lines.emplace_back(row.strategy.name, waiting_of(way));
    widest = std::max(widest, row.strategy.name.size());
  }
  if (lines.empty()) return {};
  std::string text = "\nTime that each rank waits in a step:\n";
  for (const auto& [name, waiting] : lines) text += fmt::format("{:<{}}  ranks {}\n", name, widest, waiting);
  return text;
}

std::string step_table(const Comparison& comparison) {
  const std::vector<std::string> head = {"on all devices",  "step",          "compute",
                                         "exposed",         "waiting, mean", "waiting, worst",
                                         "sent per device", "memory",        "found by"};
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
  return rows.empty() ? std::string() : table(head, rows, {.optional = {"found by", "sent per device"}});
}

std::string tunings(const Comparison& comparison) {
  std::string text;
  for (const Row& row : comparison.rows) {
    if (!row.whole().possible() || !row.whole().tuning) continue;
    const Tuning& t = *row.whole().tuning;
    text += fmt::format(
        "{} settles on buckets of {}, a cycle of {}{}, after {} steps that take at least {} more "
        "than as many settled ones.\n",
        row.strategy.name, human_bytes(t.bucket_bytes), human_seconds(t.cycle_s),
        t.group > 0 ? fmt::format(", sums of {} devices first", t.group) : "", t.steps,
        human_seconds(t.extra_s));
  }
  return text.empty() ? text : "\n" + text;
}

std::string refusals(const Comparison& comparison) {
  std::vector<std::pair<std::string, std::vector<std::string>>> reasons;  // why, of which strategies
  for (const Row& row : comparison.rows) {
    const std::string& why = row.whole().refusal;
    if (row.whole().possible()) continue;
    auto reason =
        std::find_if(reasons.begin(), reasons.end(), [&](const auto& one) { return one.first == why; });
    if (reason == reasons.end()) reason = reasons.insert(reason, {why, {}});
    reason->second.push_back(row.strategy.name);
  }
  std::string text;
  for (const auto& [why, names] : reasons)
    text += fmt::format("{} {} not run on all devices: {}\n", fmt::join(names, ", "),
                        names.size() == 1 ? "does" : "do", why);
  return text;
}

// Samples a second through each trouble by itself, where there are several.
std::string alone_table(const CompareRequest& request, const Comparison& comparison) {
  std::vector<std::string> head = {"samples/s under each alone"};
  for (const std::string& troubles : request.troubles)
    for (const std::string& trouble : split(troubles)) head.push_back(trouble);
  std::vector<std::vector<std::string>> rows;
  for (const Row& row : comparison.rows) {
    if (row.alone.empty()) continue;
    std::vector<std::string>& cells = rows.emplace_back();
    cells.push_back(row.strategy.name);
    for (const Ordeal& ordeal : row.alone) cells.push_back(rate(ordeal.samples_per_s()));
  }
  return rows.empty() ? std::string() : "\n" + table(head, rows);
}

std::string trouble_table(const CompareRequest& request, const Comparison& comparison) {
  const auto any = std::find_if(comparison.rows.begin(), comparison.rows.end(),
                                [](const Row& row) { return row.ordeal.has_value(); });
  if (any == comparison.rows.end()) return {};
  const OrdealOptions& options = request.options;
  std::string text = fmt::format(
      "\nUnder {}, over {} (seed {}; a checkpoint every {}; a restart takes {}; a replacement comes after "
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
  text += table({"under trouble", "samples/s", "of untroubled", "waiting, mean", "waiting, worst", "stopped",
                 "lost samples", "dropped", "workers"},
                rows);
  text += alone_table(request, comparison);
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
             "\nBusy time of the workers in a step, by how its samples are dealt (first step, then the mean "
             "of "
             "the {} after it):\n",
             comparison.balances.front().steps.size() - 1) +
         table({"shares", "std dev, first", "max/mean", "std dev, then", "max/mean", "longest",
                "samples in the last step"},
               rows);
}

std::string cut_table(const Comparison& comparison) {
  if (comparison.recuts.empty()) return {};
  std::vector<std::vector<std::string>> rows;
  for (const Recut& r : comparison.recuts) {
    const CutStep& first = r.steps.front();
    int moved = 0;
    for (const CutStep& step : r.steps) moved += step.moved;
    rows.push_back({std::string(comparison::name_of(r.cutting)), human_seconds(first.std_s),
                    fmt::format("{:.2f}", first.max_over_mean), human_seconds(r.std_s),
                    fmt::format("{:.2f}", r.max_over_mean), human_seconds(r.longest_s),
                    human_seconds(r.step_s), r.simulated_s ? human_seconds(*r.simulated_s) : "-",
                    std::to_string(moved), fmt::format("{}", fmt::join(r.steps.back().layers, ","))});
  }
  return fmt::format(
             "\nBusy time of a pipeline's {} stages in a step, by how its layers are cut (first step, then "
             "the "
             "mean of the {} after it; simulated: the last cut):\n",
             comparison.recuts.front().steps.front().layers.size(),
             comparison.recuts.front().steps.size() - 1) +
         table({"cuts", "std dev, first", "max/mean", "std dev, then", "max/mean", "longest", "step",
                "simulated", "layers moved", "layers in the last step"},
               rows);
}

// Of the best way, else of the fastest that fits.
std::string sureness(const Comparison& comparison) {
  const std::optional<std::size_t> shown = comparison.best ? comparison.best : comparison.fastest;
  const Row* of = shown ? &comparison.rows[*shown] : nullptr;
  if (of == nullptr || !of->interval) return {};
  return fmt::format("90% interval of {} on all devices: {} to {} a step. {}\n", of->strategy.name,
                     human_seconds(of->interval->step_time_s.low),
                     human_seconds(of->interval->step_time_s.high),
                     what_it_rests_on(of->interval->rests_on, of->interval->narrowed_by));
}

}  // namespace

std::string text_of(const CompareRequest& request, const Comparison& comparison) {
  return headline(request) + comparison.verdict + "\n" + sureness(comparison) + "\n" +
         scaling_tables(comparison) + step_table(comparison) + refusals(comparison) + tunings(comparison) +
         (layout().verbose ? waiting_list(comparison) : std::string()) + trouble_table(request, comparison) +
         balance_table(comparison) + cut_table(comparison) +
         (layout().verbose
              ? std::string()
              : "(--verbose adds efficiency, exposed communication, waiting, bytes and memory by "
                "number of devices, and every rank's waiting)\n");
}

}  // namespace orrery::cli
