#include "cli/plan_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/error.h"
#include "base/format.h"
#include "base/note.h"
#include "cli/output.h"

namespace orrery::cli {

void say_what_was_imported(const std::vector<std::string>& ignored, int settings_read,
                           const std::vector<std::string>& assumed) {
  std::vector<std::string> named;
  for (const std::string& one : ignored)
    if (layout().verbose || !is_harmless(one)) named.push_back(one);
  if (const std::size_t more = ignored.size() - named.size(); more > 0)
    named.push_back(fmt::format("{}{} (--verbose names {})", named.empty() ? "" : "and ",
                                more == 1
                                    ? "1 that changes nothing here or is said elsewhere"
                                    : fmt::format("{} that change nothing here or are said elsewhere", more),
                                more == 1 ? "it" : "them"));
  if (!ignored.empty())
    fmt::print(stderr, "orrery: {}ignored: {}\n",
               settings_read > 0 ? fmt::format("{} read, ", counted(settings_read, "setting")) : "",
               fmt::join(named, "; "));
  if (!assumed.empty())
    fmt::print(stderr, "orrery: assumed: {}\n", in_flags(fmt::format("{}", fmt::join(assumed, "; "))));
}

void say_warnings(const std::vector<std::string>& warnings) {
  for (const std::string& warning : warnings) fmt::print(stderr, "orrery: {}\n", warning);
}

void say_notes(const Workload& workload) {
  for (const std::string& note : workload.notes) fmt::print(stderr, "{}{}\n", kNote, note);
}

std::string in_flags(std::string_view text) {
  Request any;
  return with_flags(text, request_options(any));
}

Setting plan_option(std::string& plan) {
  return text_option(
      {.key = "plan", .help = "a plan that `orrery plan --out` wrote", .positional = true, .required = true},
      plan);
}

Setting detail_option(std::string& detail) {
  return text_option({.key = "detail",
                      .unit = "flows|messages",
                      .help = "flows: a collective is one flow per edge; messages: every message of each of "
                              "its steps, for small groups",
                      .fallback = "flows"},
                     detail);
}

bool parse_fold(const std::string& name) {
  if (name == "on") return true;
  if (name == "off") return false;
  throw UserError(fmt::format("`fold` {} is unknown", name), "expected on or off");
}

std::string job_line(const Job& job) {
  const Training& training = job.training;
  std::string text = fmt::format("{} ({} parameters) on {}: {}, {}; global batch {}", job.workload.name,
                                 human_count(static_cast<double>(job.workload.parameters())),
                                 job.cluster.name, counted(job.cluster.devices(), "device"),
                                 nodes_in_words(job.cluster), with_commas(training.global_batch));
  if (const std::string sequences = sequences_text(training); !sequences.empty()) text += ", " + sequences;
  return text + fmt::format(", {}, {}, runtime {}\n", name_of(training.precision),
                            name_of(training.optimizer), job.runtime.name);
}

std::string breakdown_text(const Breakdown& breakdown) {
  const double total = breakdown.total();
  if (total <= 0) return {};
  std::string text;
  for (const auto& [name, seconds] : planner::parts_of(breakdown))
    if (seconds >= total * 0.0005)
      text += fmt::format("{}{} {:.1f}%", text.empty() ? "Parts of the step: " : ", ", spoken_part(name),
                          100 * seconds / total);
  return text + ".\n";
}

namespace {

// `narrow`: where lines have an end.
struct Column {
  std::string name;
  std::function<std::string(const planner::Evaluation&)> cell;
  std::string narrow_name = {};
  std::function<std::string(const planner::Evaluation&)> narrow_cell = {};
};

// What is needed least of a table of plans, first.
const std::vector<std::string>& optional_columns() {
  static const std::vector<std::string> names = {"bucket",  "overlap",  "TFLOP/s/device", "regret",    "sp",
                                                 "fastest", "bound by", "tokens/s",       "samples/s", "MFU",
                                                 "etp",     "recompute"};
  return names;
}

std::string narrow_schedule_cell(const Choices& c) {
  return c.schedule == Schedule::interleaved ? fmt::format("interl. {}", c.interleave)
                                             : std::string(name_of(c.schedule));
}

std::string schedule_cell(const Choices& c) {
  return c.schedule == Schedule::interleaved ? fmt::format("{} {}", name_of(c.schedule), c.interleave)
                                             : std::string(name_of(c.schedule));
}

std::string recompute_cell(const Choices& c) {
  if (c.recompute_modules != 0) return fmt::format("{}", fmt::join(names_of(c.recompute_modules), ","));
  return c.recompute == Recompute::full && c.recompute_layers > 0 ? fmt::format("full:{}", c.recompute_layers)
                                                                  : std::string(name_of(c.recompute));
}

std::string narrow_recompute_cell(const Choices& c) {
  const std::size_t modules = names_of(c.recompute_modules).size();
  return modules > 0 ? fmt::format("select. {}", modules) : recompute_cell(c);
}

std::string zero_cell(const Choices& c) {
  return c.hybrid() ? fmt::format("{} in {}s", c.zero, c.shard_group) : std::to_string(c.zero);
}

std::string narrow_zero_cell(const Choices& c) {
  return c.hybrid() ? fmt::format("{}/{}", c.zero, c.shard_group) : std::to_string(c.zero);
}

std::string bucket_cell(const Choices& c) {
  return c.zero == 3 ? "layer" : c.bucket_bytes > 0 ? human_bytes(c.bucket_bytes) : "runtime's";
}

// The dimensions that some plan uses, and those details in which the plans differ.
std::vector<Column> dimension_columns(const std::vector<planner::Evaluation>& plans) {
  std::vector<Column> columns;
  const auto add = [&](const char* name, auto cell) {
    columns.push_back({name, [cell](const planner::Evaluation& e) { return cell(e.plan.choices); }});
  };
  const auto add_if_used = [&](const char* name, auto used, auto cell) {
    if (std::any_of(plans.begin(), plans.end(), [&](const auto& e) { return used(e.plan.choices); }))
      add(name, cell);
  };
  // The last column's, where lines have an end.
  const auto narrow = [&](std::string name, auto cell) {
    if (columns.empty() || columns.back().name != name) return;
    columns.back().narrow_cell = [cell](const planner::Evaluation& e) { return cell(e.plan.choices); };
  };
  const auto add_if_differing = [&](const char* name, auto cell) {
    const std::string first = cell(plans.front().plan.choices);
    add_if_used(
        name, [&](const Choices& c) { return cell(c) != first; }, cell);
  };
  const auto pipelined = [](const Choices& c) { return c.pp > 1; };
  const auto sharded = [](const Choices& c) { return c.zero > 0 || c.hybrid(); };
  const auto on_off = [](bool on) { return std::string(on ? "on" : "off"); };
  add("tp", [](const Choices& c) { return std::to_string(c.tp); });
  add("pp", [](const Choices& c) { return std::to_string(c.pp); });
  add("dp", [](const Choices& c) { return std::to_string(c.dp); });
  add_if_used(
      "cp", [](const Choices& c) { return c.cp > 1; }, [](const Choices& c) { return std::to_string(c.cp); });
  add_if_used(
      "ep", [](const Choices& c) { return c.ep > 1; }, [](const Choices& c) { return std::to_string(c.ep); });
  add_if_used(
      "etp", [](const Choices& c) { return c.etp > 1; },
      [](const Choices& c) { return std::to_string(c.etp); });
  columns.push_back({"micro-batch",
                     [](const planner::Evaluation& e) {
                       return fmt::format("{}×{}", e.plan.choices.micro_batch, e.plan.micro_batches());
                     },
                     "mb×n"});
  add_if_used("schedule", pipelined, schedule_cell);
  narrow("schedule", narrow_schedule_cell);
  add("recompute", recompute_cell);
  narrow("recompute", narrow_recompute_cell);
  add_if_used("zero", sharded, zero_cell);
  narrow("zero", narrow_zero_cell);
  add_if_used(
      "sp", [](const Choices& c) { return c.sequence_parallel; },
      [on_off](const Choices& c) { return on_off(c.sequence_parallel); });
  add_if_differing("overlap", [on_off](const Choices& c) { return on_off(c.overlap_grad_reduce); });
  add_if_differing("bucket", bucket_cell);
  return columns;
}

// By how much a plan is slower than the best, and which part of the step grew most.
std::string slowdown_cell(const planner::Evaluation& best, const planner::Evaluation& other) {
  const planner::StepSlowdown slowdown = planner::slowdown_against(best, other);
  const double share = slowdown.seconds / best.step_time_s();
  if (std::abs(share) < 5e-4) return "-";
  return fmt::format("{:.1f}%: {}", 100 * share, slowdown.part);
}

std::vector<Column> figure_columns(bool tokens) {
  return {
      {"step", [](const planner::Evaluation& e) { return human_seconds(e.step_time_s()); }},
      {tokens ? "tokens/s" : "samples/s",
       [tokens](const planner::Evaluation& e) {
         const planner::Throughput rate = planner::throughput(e);
         const double per_s = tokens ? rate.tokens_per_s : rate.samples_per_s;
         return per_s < 100 ? fmt::format("{:.1f}", per_s) : with_commas(std::llround(per_s));
       }},
      {"TFLOP/s/device",
       [](const planner::Evaluation& e) {
         const double rate = planner::throughput(e).model_tflops_per_gpu;
         return fmt::format("{:.{}f}", rate, rate < 10 ? 2 : 0);
       }},
      {"MFU",
       [](const planner::Evaluation& e) { return fmt::format("{:.1f}%", planner::throughput(e).mfu * 100); }},
      {"memory", [](const planner::Evaluation& e) { return human_bytes(e.memory.total); }},
      {"bound by", [](const planner::Evaluation& e) { return planner::bound_by(e); }},
  };
}

}  // namespace

std::string plan_table(const std::vector<planner::Evaluation>& plans) {
  std::vector<Column> columns = dimension_columns(plans);
  for (Column& column : figure_columns(plans.front().plan.job->training.seq_len > 0))
    columns.push_back(std::move(column));
  if (plans.size() > 1 && plans.front().odds) {
    columns.push_back({"fastest", [](const planner::Evaluation& e) {
                         return e.odds ? fmt::format("{:.0f}%", 100 * e.odds->probability_fastest) : "";
                       }});
    columns.push_back({"regret", [](const planner::Evaluation& e) {
                         return e.odds ? human_seconds(e.odds->regret_s) : std::string();
                       }});
  }
  if (plans.size() > 1)
    columns.push_back({"slower by",
                       [&](const planner::Evaluation& e) { return slowdown_cell(plans.front(), e); },
                       "slower by",
                       [&](const planner::Evaluation& e) {
                         const std::string cell = slowdown_cell(plans.front(), e);
                         return cell.substr(0, cell.find(':'));
                       }});
  const auto laid_out = [&](bool narrow, std::vector<std::string>& head) {
    head = {"#"};
    for (const Column& column : columns)
      head.push_back(narrow && !column.narrow_name.empty() ? column.narrow_name : column.name);
    std::vector<std::vector<std::string>> rows;
    for (const planner::Evaluation& evaluation : plans) {
      std::vector<std::string>& row = rows.emplace_back();
      row.push_back(std::to_string(rows.size()));
      for (const Column& column : columns)
        row.push_back((narrow && column.narrow_cell ? column.narrow_cell : column.cell)(evaluation));
    }
    return rows;
  };
  std::vector<std::string> head;
  auto rows = laid_out(false, head);
  if (!fits(head, rows)) rows = laid_out(true, head);
  return table(head, rows, {.optional = optional_columns()});
}

std::string what_it_rests_on(const planner::RestsOn& rests_on, const std::string& narrowed_by) {
  std::string text = fmt::format("This rests on: {}.", planner::what_it_rests_on(rests_on));
  if (layout().verbose) text += fmt::format(" What would narrow the interval most: {}.", narrowed_by);
  return text;
}

std::string sequences_text(const Training& training) {
  if (training.lengths.any()) return "sequences " + describe(training.lengths);
  return training.seq_len > 0 ? fmt::format("sequences of {} tokens", with_commas(training.seq_len))
                              : std::string();
}

namespace {

std::string correction_text(const Plan& plan) {
  const CorrectedBy corrected = corrected_by(plan);
  if (corrected.steps == 0) return "";
  return fmt::format("Corrected by {:+.0f}% by {} alike. ", 100 * (corrected.times - 1),
                     counted(corrected.steps, "measured step"));
}

}  // namespace

std::string interval_line(const planner::Evaluation& evaluation) {
  if (!evaluation.interval) return "";
  const planner::Interval& interval = *evaluation.interval;
  return fmt::format("{}90% interval: {} to {} a step, {} to {} of memory. {}\n",
                     correction_text(evaluation.plan), human_seconds(interval.step_time_s.low),
                     human_seconds(interval.step_time_s.high), human_bytes(interval.memory_bytes.low),
                     human_bytes(interval.memory_bytes.high),
                     what_it_rests_on(interval.rests_on, interval.narrowed_by));
}

std::string load_table(const planner::Load& load) {
  std::vector<std::vector<std::string>> stages, replicas;
  for (const planner::StageLoad& stage : load.stages)
    stages.push_back({std::to_string(stage.stage), std::to_string(stage.layers),
                      human_seconds(stage.compute_s), human_bytes(stage.memory_bytes),
                      human_bytes(stage.capacity_bytes)});
  stages.push_back(
      {"std dev", "", human_seconds(load.stage_compute_std_s), human_bytes(load.stage_memory_std_bytes), ""});
  for (const planner::ReplicaLoad& group : load.replicas)
    replicas.push_back({group.count == 1 ? std::to_string(group.first)
                                         : fmt::format("{}-{}", group.first, group.first + group.count - 1),
                        std::to_string(group.samples), human_seconds(group.compute_s)});
  replicas.push_back({"std dev", "", human_seconds(load.replica_compute_std_s)});
  return table({"stage", "layers", "computes", "memory", "capacity"}, stages) +
         table({"replica", "samples", "computes"}, replicas);
}

}  // namespace orrery::cli
