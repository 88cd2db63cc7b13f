#include "orrery/against.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include <system_error>

#include "base/error.h"
#include "base/statistics.h"
#include "measurements/compare/step_kinds.h"
#include "measurements/kinds.h"
#include "orrery/orrery.h"
#include "orrery/validate.h"
#include "planner/evaluation/interval.h"
#include "planner/uncertainty/site.h"

namespace orrery {
namespace {

template <typename Value>
std::string differs(std::string_view what, const Value& expected, const Value& found) {
  return expected == found ? std::string() : fmt::format("{} {} instead of {}", what, found, expected);
}

// Layers of a chunk that full recomputation runs again, or modules that selective does.
std::string run_again(const Plan& plan) {
  const Choices& c = plan.choices;
  if (c.recompute == Recompute::selective)
    return fmt::format("selective:{}", fmt::join(names_of(modules_run_again(c, plan.job->runtime)), ","));
  const std::vector<int> layers = layers_by_part(plan);
  const int chunks = c.pp > 1 ? c.interleave : 1, each = (c.recompute_layers + chunks - 1) / chunks;
  if (c.recompute != Recompute::full || each == 0 || each >= *std::max_element(layers.begin(), layers.end()))
    return std::string(name_of(c.recompute));
  return fmt::format("full:{} of each {}", each, chunks > 1 ? "chunk" : "stage");
}

// Of what a log that says its whole plan says beyond the rest.
std::string difference_in_whole(const Plan& plan, const Plan& measured) {
  const Choices &a = plan.choices, &b = measured.choices;
  const auto sequence_parallel = [](const Choices& c) {
    return std::string_view(c.tp > 1 && c.sequence_parallel ? "on" : "off");
  };
  const auto stages = [](const Plan& of) { return fmt::format("{}", fmt::join(layers_by_part(of), ",")); };
  for (const std::string& found :
       {differs("model chunks a stage:", a.interleave, b.interleave),
        differs("layers of the stages:", stages(plan), stages(measured)),
        differs("sequence parallelism", sequence_parallel(a), sequence_parallel(b)),
        differs("recomputation", run_again(plan), run_again(measured)),
        differs("ZeRO stage", a.dp * a.cp > 1 ? a.zero : 0, b.dp * b.cp > 1 ? b.zero : 0),
        plan.job->workload.transformer && plan.job->workload.transformer->moe ? differs("etp", a.etp, b.etp)
                                                                              : std::string()})
    if (!found.empty()) return found;
  return "";
}

// What differs first; empty: nothing that a file says. Names of models differ from file to file, sharding and
// schedules are not printed by all.
std::string difference(const Plan& plan, const Plan& measured, bool whole) {
  const Choices &a = plan.choices, &b = measured.choices;
  const Training &of = plan.job->training, &with = measured.job->training;
  for (const std::string& found :
       {differs("a", planner::model_effect(plan.job->workload),
                planner::model_effect(measured.job->workload)),
        differs("devices:", a.world(), b.world()), differs("tp", a.tp, b.tp), differs("pp", a.pp, b.pp),
        differs("cp", a.cp, b.cp), differs("ep", a.ep, b.ep),
        differs("micro-batch", a.micro_batch, b.micro_batch),
        differs("a global batch of", of.global_batch, with.global_batch),
        differs("sequences of", of.seq_len, with.seq_len),
        differs("precision", name_of(of.precision), name_of(with.precision)),
        differs("recomputation", name_of(a.recompute), name_of(b.recompute))})
    if (!found.empty()) return found;
  return whole ? difference_in_whole(plan, measured) : "";
}

// Whether a trace may be of the plan, as far as it says; a trace says neither model nor layout.
std::string difference(const Plan& plan, const measurements::RankTrace& trace) {
  const int ranks = plan.choices.world();
  if (trace.steps.empty()) return "a trace in which no device did anything";
  if (trace.world > 0 && trace.world != ranks)
    return fmt::format("a trace of {} ranks instead of {}", trace.world, ranks);
  if (trace.rank >= ranks) return fmt::format("a trace of rank {} of {}", trace.rank, ranks);
  return "";
}

// Those of one job, the first that is given; what else is given is named.
std::vector<const measurements::RankTrace*> traces_of(const Plan& plan, measurements::Measurements* measured,
                                                      const std::set<std::string>& of_others) {
  std::vector<const measurements::RankTrace*> ranks;
  for (const measurements::RankTrace& trace : measured->traces) {
    std::string why = difference(plan, trace);
    if (of_others.contains(trace.file)) why = "a trace of another plan, by the table that names it";
    const auto same = [&](const measurements::RankTrace* other) {
      return other->rank == trace.rank || other->of_instructions != trace.of_instructions ||
             other->world != trace.world;
    };
    if (why.empty() && std::any_of(ranks.begin(), ranks.end(), same))
      why = "a second trace of a rank, or of another job";
    if (why.empty())
      ranks.push_back(&trace);
    else
      measured->ignore(trace.file, 0, why);
  }
  return ranks;
}

void compare_kinds(const std::vector<const measurements::RankTrace*>& ranks, Against* result) {
  std::vector<int> numbers;
  for (const measurements::RankTrace* rank : ranks)
    if (rank->rank >= 0) numbers.push_back(rank->rank);
  const measurements::StepKinds measured = measurements::measured_step(ranks);
  const measurements::StepKinds predicted =
      measurements::predicted_step(result->predicted, numbers, ranks.front()->of_instructions);
  planner::Validation validation;
  validation.predicted_step_time_s = predicted.seconds;
  validation.measured_step_time_s = measured.seconds;
  validation.by_kind = measurements::compare(predicted, measured);
  result->explanation = planner::explain(validation);
  for (const measurements::RankTrace* rank : ranks)
    if (!rank->has_steps()) {
      result->explanation += fmt::format(
          " No step is marked in {} (ProfilerStep): all of it was taken for one step.", rank->file);
      break;
    }
  result->by_kind = std::move(validation.by_kind);
  result->traced_ranks = static_cast<int>(ranks.size());
  result->waited_s = measured.waited_s;
}

std::vector<measurements::RankTrace> traces_in(const std::string& name) {
  std::vector<std::string> files;
  std::error_code code;
  if (std::filesystem::is_directory(name, code)) {
    for (const auto& entry : std::filesystem::directory_iterator(name))
      if (entry.is_regular_file()) files.push_back(entry.path().string());
    std::sort(files.begin(), files.end());
    if (files.empty()) throw UserError(name, 0, "is empty", "a trace, or a folder of one job's traces");
  } else {
    files = {name};
  }
  measurements::Measurements all;
  measurements::Context anywhere;  // whatever device it was
  for (const std::string& file : files)
    measurements::read_trace(measurements::Source(std::filesystem::path(file)), anywhere, &all);
  return std::move(all.traces);
}

}  // namespace

Against against(const Plan& plan, const std::vector<std::string>& files) {
  measurements::Measurements measured = measurements::read(
      files, {plan.job->cluster, "", std::shared_ptr<const Workload>(plan.job, &plan.job->workload)});
  // What nothing can be learned from may still be compared.
  std::erase_if(measured.ignored, [&](const measurements::Ignored& one) {
    return std::any_of(measured.traces.begin(), measured.traces.end(),
                       [&](const measurements::RankTrace& trace) { return trace.file == one.file; });
  });
  Against result;
  std::vector<double> seconds;
  const auto take = [&](const std::string& file, int line, double measured_s) {
    result.rows.push_back({file, line, measured_s, 0});
    seconds.push_back(measured_s);
  };
  std::set<std::string> of_this, of_others;  // traces that tables name
  for (const measurements::MeasuredStep& step : measured.steps) {
    const std::string why = difference(plan, step.row.plan, step.whole);
    if (!step.trace.empty()) (why.empty() ? of_this : of_others).insert(step.trace);
    if (why.empty())
      take(step.file, step.line, step.row.measured_s);
    else
      measured.ignore(step.file, step.line, why);
  }
  for (const std::string& file : of_this) of_others.erase(file);
  const std::vector<const measurements::RankTrace*> ranks = traces_of(plan, &measured, of_others);
  const bool named =
      std::any_of(ranks.begin(), ranks.end(), [&](const auto* rank) { return of_this.contains(rank->file); });
  if (!ranks.empty() && !named) take(ranks.front()->file, 0, measurements::measured_step(ranks).seconds);
  if (result.rows.empty())
    throw UserError(files.front(), 0,
                    fmt::format("holds no step of this plan: {}",
                                measured.ignored.empty() ? "it has no steps" : measured.ignored.front().why),
                    "a step of " + planner::describe(plan));
  result.predicted = ranks.empty() ? simulate({plan, {}}).evaluation : predict(plan);
  if (!ranks.empty()) {
    planner::add_interval(&result.predicted);
    compare_kinds(ranks, &result);
  }
  for (AgainstRow& row : result.rows)
    row.relative_error = (result.predicted.step_time_s() - row.measured_s) / row.measured_s;
  result.measured_s = median(seconds);
  result.ignored = std::move(measured.ignored);
  return result;
}

measurements::TraceDiff trace_diff(const std::string& a, const std::string& b) {
  return measurements::diff_of(traces_in(a), traces_in(b));
}

}  // namespace orrery
