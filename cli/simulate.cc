// orrery simulate: one step (or several) of a plan in virtual time.
#include <fmt/format.h>

#include <memory>

#include "base/file.h"
#include "base/format.h"
#include "cli/output.h"
#include "cli/plan_file.h"
#include "cli/terminal/progress.h"
#include "cli/verbs.h"
#include "orrery/json.h"

namespace orrery::cli {
namespace {

struct SimulateOptions {
  std::string plan, fold = "on", detail = "flows", trace;
  std::optional<int> steps;
  Output output;
};

int run_simulate(const SimulateOptions& options) {
  sim::SimulationOptions simulation;
  simulation.fold = parse_fold(options.fold);
  simulation.detail = detail_from_name(options.detail);
  simulation.steps = options.steps.value_or(0);
  simulation.keep_timeline = !options.trace.empty();
  check_outputs({options.trace, options.output.file()});
  Plan plan = load_plan(options.plan);
  options.output.about(to_json(*plan.job));
  begin_progress("simulating");
  const Simulated simulated = simulate({std::move(plan), simulation});
  const sim::Simulation& result = *simulated.evaluation.simulation;
  if (!options.trace.empty()) write_file_atomically(options.trace, planner::trace_of(simulated.evaluation));

  std::vector<std::vector<std::string>> rows;
  for (std::size_t i = 0; i < result.links.size() && i < kLinksReported; ++i) {
    const auto& link = result.links[i];
    rows.push_back({link.name, fmt::format("{:.1f}%", link.utilization * 100), human_bytes(link.bytes)});
  }

  say_warnings(planner::warnings_about(simulated.evaluation.plan));
  options.output.write(to_json(simulated));
  options.output.print(job_line(*simulated.evaluation.plan.job));
  options.output.print(planner::what_bounds(simulated.evaluation) + "\n");
  options.output.print(interval_line(simulated.evaluation) + "\n");
  options.output.print(plan_table({simulated.evaluation}) + "\n");
  options.output.print(breakdown_text(result.breakdown));
  options.output.print(fmt::format("Simulated {} of {}, {} activities, in {}.\n",
                                   with_commas(result.simulated_ranks), counted(result.ranks, "rank"),
                                   with_commas(static_cast<std::int64_t>(result.events)),
                                   human_seconds(simulated.wall_s)));
  if (!rows.empty()) options.output.print("\n" + table({"busiest links", "utilization", "bytes"}, rows));
  if (!options.trace.empty())
    options.output.print(
        fmt::format("Trace written to {}: open it in https://ui.perfetto.dev\n", options.trace));
  return 0;
}

}  // namespace

Command simulate_command() {
  const auto options = std::make_shared<SimulateOptions>();
  return {"simulate",
          "predicts a plan's step by simulating it",
          {plan_option(options->plan),
           text_option({.key = "fold",
                        .unit = "on|off",
                        .help = "on: simulate one rank of each class of symmetric ranks; off: every rank",
                        .fallback = "on"},
                       options->fold),
           detail_option(options->detail),
           text_option({.key = "trace",
                        .unit = "FILE",
                        .help = "write a Chrome/Perfetto trace",
                        .fallback = "none written"},
                       options->trace),
           count_option({.key = "steps",
                         .unit = "N",
                         .help = "number of steps to simulate",
                         .fallback = "as many as the steady state needs"},
                        options->steps, {1, 10000}),
           options->output.setting()},
          [options] { return run_simulate(*options); }};
}

}  // namespace orrery::cli
