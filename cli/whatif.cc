// orrery whatif: a plan for each combination of varied options, in time, money and energy.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/units.h"
#include "cli/output.h"
#include "cli/plan_file.h"
#include "cli/terminal/progress.h"
#include "cli/verbs.h"
#include "cli/whatif_text.h"
#include "orrery/json.h"

namespace orrery::cli {
namespace {

namespace whatif = planner::whatif;

struct WhatifOptions {
  Request request;
  std::vector<std::string> vary;
  std::optional<double> tokens, samples;
  std::optional<double> deadline_days, budget_usd;
  std::string out;
  int jobs = 0;
  Output output;
};

// Of all points, each once.
std::vector<std::string> warnings_of(const whatif::Result& result) {
  std::vector<std::string> all;
  for (const whatif::Answer& answer : result.answers) {
    if (!answer.best) continue;
    for (std::string& warning : planner::warnings_about(answer.best->evaluation.plan))
      if (std::find(all.begin(), all.end(), warning) == all.end()) all.push_back(std::move(warning));
  }
  return all;
}

int run_whatif(const WhatifOptions& options) {
  if (!options.tokens && !options.samples && (options.deadline_days || options.budget_usd))
    throw UserError("`deadline_days` and `budget_usd` limit a whole training",
                    "expected `tokens` or `samples` beside them");
  std::vector<whatif::Varied> varied;
  for (const std::string& text : options.vary) varied.push_back(parse_varied(text));
  check_varied(varied);
  Points all = points_of(options.request, varied);
  const whatif::Goal goal = goal_of(options.tokens, options.samples, all.points);
  whatif::Limits limits;
  if (options.deadline_days) limits.deadline_s = *options.deadline_days * kSecondsPerDay;
  limits.budget_usd = options.budget_usd;
  if (!all.points.empty()) say_notes(all.points.front().job->workload);
  check_outputs({options.out, options.output.file()});  // before minutes of planning
  begin_progress("planning");
  const whatif::Result result =
      orrery::whatif({std::move(varied), std::move(all.points), goal, limits, options.jobs,
                      [](int done, int total) { show_progress("planning", done, total); }});
  end_progress();
  say_what_was_imported(all.ignored, all.settings_read, all.assumed);
  say_warnings(warnings_of(result));

  if (!options.out.empty()) write_file_atomically(options.out, whatif::to_csv(result));
  options.output.write(to_json(result));
  options.output.print(in_flags(text_of(result, all.shared_batch)));
  if (!options.out.empty()) options.output.print(fmt::format("Points written to {}.\n", options.out));
  check_answered(result);
  return 0;
}

std::string vary_help() {
  std::string text =
      "plan with each of these values. KEY is any option above (nodes=64,128), cluster, workload, or "
      "hardware:";
  for (const planner::HardwareKey& key : planner::hardware_keys())
    text += fmt::format(" {} ({}),", key.key, key.help);
  text.pop_back();
  return text + fmt::format(
                    ". It replaces that option. Several --vary are combined, up to {} plans. Separate values "
                    "that hold commas by ;",
                    whatif::kMostPoints);
}

// The questions beside the request.
std::vector<Setting> questions(WhatifOptions& options) {
  std::vector<Setting> all = {
      texts_option({.key = "vary", .unit = "KEY=V1,V2,…", .help = vary_help(), .repeated = true},
                   options.vary),
      amount_option({.key = "tokens",
                     .unit = "T",
                     .help = "tokens to train on, without failures and checkpoints; k, M, B, T are SI",
                     .fallback = "figures are per 1e9 tokens"},
                    options.tokens),
      amount_option({.key = "samples",
                     .unit = "S",
                     .help = "samples (sequences) to train on; k, M, B, T are SI",
                     .fallback = "figures are per 1e9 samples",
                     .excludes = "tokens"},
                    options.samples),
      number_option({.key = "deadline_days",
                     .unit = "DAYS",
                     .help = "most days that the training may take; plans that take longer are never called "
                             "cheapest or fastest",
                     .fallback = "any"},
                    options.deadline_days, kPositive),
      number_option({.key = "budget_usd",
                     .unit = "USD",
                     .help = "most USD that the training may cost, at the price of a device hour",
                     .fallback = "any"},
                    options.budget_usd, kPositive),
      text_option(
          {.key = "out", .unit = "CSV", .help = "write the points as CSV", .fallback = "none written"},
          options.out),
      count_option({.key = "jobs",
                    .unit = "J",
                    .help = "number of plans computed at a time; the answer does not depend on it",
                    .fallback = "0, one per processor core"},
                   options.jobs, {0, kMostJobs})};
  for (Setting& setting : all) setting.option.group = "What if";
  return all;
}

}  // namespace

Command whatif_command() {
  const auto options = std::make_shared<WhatifOptions>();
  Command command{"whatif",
                  "plans every combination of varied options and compares time to train, cost and energy",
                  request_options(options->request), [options] { return run_whatif(*options); }};
  command.option("cluster").required = false;  // it may be varied
  command.add(questions(*options));
  command.add(options->output.setting());
  return command;
}

}  // namespace orrery::cli
