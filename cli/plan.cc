// orrery plan: searches, ranks, says why, and writes the best plan.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "base/format.h"
#include "cli/output.h"
#include "cli/plan_file.h"
#include "cli/terminal/progress.h"
#include "cli/verbs.h"
#include "orrery/json.h"

namespace orrery::cli {
namespace {

struct PlanOptions {
  Request request;
  std::string out;
  int jobs = 0;
  bool load = false, pareto = false;
  Output output;
};

std::string headline(const Job& job) {
  std::string text = job_line(job);
  if (const auto& calibration = job.cluster.calibration) {
    const bool other = calibration->steps > 0 && calibration->runtime != job.runtime.name;
    text += fmt::format(
        "Calibrated by {}{}.\n", calibration->source,
        other ? fmt::format("; its steps were measured with runtime {}, whose kernels say nothing of "
                            "{}'s",
                            calibration->runtime, job.runtime.name)
              : "");
  }
  return text;
}

std::string verdict(const planner::SearchResult& result) {
  const std::string plans = with_commas(result.candidates);
  return (result.proven
              ? fmt::format("Proven best of {} plans under this model", plans)
              : fmt::format("Best found of {} plans, within {:.1f}% of the bound", plans, result.gap * 100)) +
         fmt::format(" ({} of the plans checked fit in memory; {} simulated; {}).\n",
                     with_commas(result.feasible), with_commas(result.simulated),
                     human_seconds(result.search_s));
}

// What nobody should have to ask for: devices that are better left out or in another order, what little
// memory costs in time, and a plan below the first that takes less.
std::string surprises(const planner::SearchResult& result, planner::Objective objective) {
  const planner::Evaluation& answer = result.plans.front();
  std::string text;
  const planner::Subset* alone = planner::best_subset(result, objective);
  if (alone != nullptr &&
      planner::objective_value(objective, *alone->best) < planner::objective_value(objective, answer))
    text += sentences(
        fmt::format("{} alone ({}) takes {} a step: leave the other devices out.", alone->cluster.name,
                    counted(alone->cluster.devices(), "device"), human_seconds(alone->best->step_time_s())),
        columns());
  if (!result.why_fewer.empty()) text += sentences(result.why_fewer, columns());
  if (!result.why_unsure.empty()) text += sentences(in_flags(result.why_unsure), columns());
  if (!result.why_tensor_overlap.empty()) text += sentences(in_flags(result.why_tensor_overlap), columns());
  if (!result.beyond_replicas.empty()) text += sentences(in_flags(result.beyond_replicas), columns());
  if (!result.group_order.empty()) text += sentences(result.group_order, columns());
  if (!result.price_of_memory.empty()) text += sentences(result.price_of_memory, columns());
  if (result.nominal && result.nominal->step_time_s() < answer.step_time_s())
    text += sentences(result.why_not_nominal, columns());
  return text;
}

// Why a faster plan stands below a slower one.
std::string ranking_note(const planner::SearchResult& result, const planner::SearchOptions& search) {
  const bool by_regret = search.rank == planner::Rank::robust && result.plans.front().odds.has_value() &&
                         search.objective == planner::Objective::step_time;
  const bool in_order =
      std::is_sorted(result.plans.begin(), result.plans.end(),
                     [](const auto& a, const auto& b) { return a.step_time_s() < b.step_time_s(); });
  if (!by_regret || in_order) return {};
  return sentences("(ranked by expected regret; --rank nominal ranks by the step)", columns());
}

// The front, and what it covers.
std::string pareto_table(const Job& job, const planner::SearchResult& result) {
  const bool priced = planner::usd_per_s(job.cluster) > 0;
  const bool powered = states_power(job.cluster);
  std::vector<std::string> head = {"step"};
  if (priced) head.emplace_back("USD/step");
  if (powered) head.emplace_back("kWh/step");
  for (const char* name : {"memory", "headroom", "plan"}) head.emplace_back(name);
  std::vector<std::vector<std::string>> rows;
  for (const planner::Evaluation& evaluation : result.pareto) {
    const planner::Figures figures = planner::figures_of(evaluation);
    std::vector<std::string> row = {human_seconds(figures.step_s)};
    if (priced) row.push_back(fmt::format("{:.4g}", figures.cost_usd));
    if (powered) row.push_back(fmt::format("{:.4g}", figures.energy_j / 3.6e6));
    row.push_back(human_bytes(figures.memory_bytes));
    row.push_back(human_bytes(evaluation.memory.capacity - evaluation.memory.total));
    row.push_back(planner::describe(evaluation.plan));
    rows.push_back(std::move(row));
  }
  std::string text = fmt::format(
      "Pareto front of {}, exact for the {} simulated plans. They are the best plans of the search and {} of "
      "the "
      "{} plans on the front that the closed form draws over {} plans that fit{}.\n",
      priced && powered ? "step time, cost, energy and memory"
      : priced          ? "step time, cost and memory"
      : powered         ? "step time, energy and memory"
                        : "step time and memory",
      with_commas(result.simulated), with_commas(result.pareto_simulated), with_commas(result.pareto_front),
      with_commas(result.pareto_looked_into),
      std::isfinite(result.pareto_beyond_s)
          ? fmt::format("; all other layouts take at least {} a step", human_seconds(result.pareto_beyond_s))
          : std::string(" in all layouts"));
  return text + table(head, rows, {.text = true}) + "\n";
}

int run_plan(const PlanOptions& options) {
  Question question = question_of(options.request);
  const auto& job = question.job;
  check_outputs({options.out, options.output.file()});
  say_notes(job->workload);
  options.output.about(to_json(*job));
  planner::SearchOptions search = question.search;
  search.jobs = options.jobs;
  search.pareto = options.pareto;
  begin_progress("planning");
  search.progress = show_progress;
  // Beside an answer, be it "no": an error stands alone.
  const planner::SearchResult result = [&] {
    try {
      return orrery::plan(job, question.pins, search);
    } catch (const NoAnswer&) {
      end_progress();
      say_what_was_imported(question.ignored, question.settings_read, question.assumed);
      throw;
    }
  }();
  end_progress();
  say_what_was_imported(question.ignored, question.settings_read, question.assumed);
  say_warnings(result.warnings);

  // Files first: where one cannot be written, the error stands alone.
  if (!options.out.empty()) write_plan(result.plans.front().plan, options.out);
  options.output.write(to_json(*job, result));
  const planner::Load load = planner::load_of(result.plans.front());
  const std::string why = in_flags(result.why);
  options.output.print(headline(*job));
  options.output.print(std::string(first_sentence(why)) + "\n");
  options.output.print(interval_line(result.plans.front()) + "\n");
  options.output.print(plan_table(result.plans) + ranking_note(result, search) + "\n");
  if (options.pareto) options.output.print(pareto_table(*job, result));
  if (options.load)
    options.output.print("Load of the best plan's stages and replicas in a step:\n" + load_table(load) +
                         "\n");
  // Why, sentence by sentence: the first one stands above.
  std::string_view rest = why;
  rest.remove_prefix(std::min(first_sentence(why).size() + 1, why.size()));
  std::string more = sentences(rest, columns());
  for (const std::string& sentence :
       {planner::uneven_load(load), planner::unequal_sequences(result.plans.front().plan)})
    if (!sentence.empty()) more += sentences(sentence, columns());
  options.output.print_more(more);
  if (!layout().verbose) options.output.print(surprises(result, search.objective));
  options.output.print(verdict(result));
  if (!layout().verbose)
    options.output.print("(--verbose adds the runner-up, what would help and what others run)\n");
  if (!options.out.empty()) options.output.print(fmt::format("Best plan written to {}.\n", options.out));
  return 0;
}

}  // namespace

Command plan_command() {
  const auto options = std::make_shared<PlanOptions>();
  Command command{"plan", "finds the best plan to train WORKLOAD on CLUSTER",
                  request_options(options->request), [options] { return run_plan(*options); }};
  command.add(text_option({.key = "out",
                           .unit = "PLAN",
                           .help = "write the best plan to this file, with workload and cluster in it",
                           .fallback = "none written"},
                          options->out));
  command.add(count_option({.key = "jobs",
                            .unit = "J",
                            .help = "number of simulating processes; the answer does not depend on it",
                            .fallback = "0, one per processor core"},
                           options->jobs, {0, kMostJobs}));
  command.add(
      switch_option({.key = "pareto",
                     .help = "search the whole Pareto front of step time, cost, energy and memory headroom "
                             "and print it (the JSON always has the front of the plans that were simulated)"},
                    options->pareto));
  command.add(switch_option({.key = "load",
                             .help = "print the computation and memory of each pipeline stage and replica of "
                                     "the best plan (the JSON always has them)"},
                            options->load));
  command.add(options->output.setting());
  return command;
}

}  // namespace orrery::cli
