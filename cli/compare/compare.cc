// orrery compare: ways of data-parallel training side by side, also under trouble.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <limits>
#include <memory>

#include "base/file.h"
#include "cli/compare/compare_text.h"
#include "cli/output.h"
#include "cli/plan_file.h"
#include "cli/terminal/progress.h"
#include "cli/verbs.h"
#include "orrery/json.h"

namespace orrery::cli {
namespace {

// Of a request's options, those that say what is trained on what; the rest is of a search.
constexpr std::array<std::string_view, 11> kShared = {"workload",  "cluster",      "nodes",      "gpus",
                                                      "runtime",   "global_batch", "seq_len",    "precision",
                                                      "optimizer", "attention",    "micro_batch"};

struct Options {
  Request request;
  CompareRequest compare;
  Output output;
};

int run(const Options& options) {
  CompareRequest request = options.compare;
  request.question = question_of(options.request);
  comparison::check_one_kind(request.question.job->cluster, options.request.cluster);
  say_notes(request.question.job->workload);
  check_writable(options.output.file());
  begin_progress("comparing");
  const comparison::Comparison result = compare(request);
  options.output.write(to_json(request, result));
  options.output.print(in_flags(text_of(request, result)));
  comparison::check_answered(result);
  return 0;
}

std::string strategies_help() {
  std::vector<std::string> names;
  for (const comparison::Strategy& strategy : comparison::known_strategies()) names.push_back(strategy.name);
  return fmt::format(
      "ways to compare, separated by commas, each with settings behind colons "
      "(horovod:cycle=5ms:bucket=64M): all, or some of {}",
      fmt::join(names, ", "));
}

std::string default_names() {
  std::vector<std::string> names;
  for (const comparison::Strategy& strategy : comparison::default_strategies())
    names.push_back(strategy.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

std::vector<Setting> questions(Options& options) {
  comparison::OrdealOptions& ordeal = options.compare.options;
  const auto seconds = [](std::string key, std::string help, std::string fallback) {
    return Option{
        .key = std::move(key), .unit = "SECONDS", .help = std::move(help), .fallback = std::move(fallback)};
  };
  std::vector<Setting> all = {
      text_option(
          {.key = "strategies", .unit = "LIST", .help = strategies_help(), .fallback = default_names()},
          options.compare.strategies),
      texts_option(
          {.key = "trouble",
           .unit = "WHAT",
           .help = "trouble to train through on all devices, several separated by commas: "
                   "slow-device=RANK:SPEED, slow-link=NODE:SPEED, neighbour=NODE:SHARE[:ON_S:OFF_S], "
                   "lognormal=SIGMA, on-off=RANK:SPEED:ON_S:OFF_S, dies=worker:RANK@S, dies=chief@S, "
                   "dies=server:RANK@S, leaves=DEVICES@S, joins=DEVICES@S",
           .fallback = "none",
           .repeated = true},
          options.compare.troubles),
      number_option(seconds("horizon", "time of training under trouble",
                            "one hour, or twice the time until the last event; 400 steps when nothing "
                            "changes during training"),
                    ordeal.horizon_s, kPositive),
      number_option(seconds("checkpoint_every", "time between checkpoints", "600"), ordeal.checkpoint_every_s,
                    kPositive),
      number_option(seconds("restart_s", "time to start a job again, or to form a group again", "60"),
                    ordeal.restart_s),
      number_option(seconds("replace_s", "time until a dead worker or server is replaced", "300"),
                    ordeal.replace_s),
      count_option({.key = "stages",
                    .unit = "P",
                    .help = "stages of a pipeline over all devices: also show how to cut its layers while "
                            "speeds differ or change",
                    .fallback = "none"},
                   options.compare.stages, {2, 1 << 20}),
      count_option({.key = "seed", .unit = "N", .help = "seed of all random draws", .fallback = "1"},
                   ordeal.seed, {0, std::numeric_limits<std::int64_t>::max()}),
      count_option({.key = "jobs",
                    .unit = "J",
                    .help = "number of simulations at a time; the answer does not depend on it",
                    .fallback = "0, one per processor core"},
                   options.compare.jobs, {0, kMostJobs})};
  for (Setting& setting : all) setting.option.group = "Comparison";
  return all;
}

}  // namespace

Command compare_command() {
  const auto options = std::make_shared<Options>();
  Command command{"compare", "compares ways of data-parallel training, also under trouble", {}, [options] {
                    return run(*options);
                  }};
  for (Setting& setting : request_options(options->request))
    if (std::find(kShared.begin(), kShared.end(), setting.option.key) != kShared.end())
      command.add(std::move(setting));
  command.add(questions(*options));
  command.add(options->output.setting());
  return command;
}

}  // namespace orrery::cli
