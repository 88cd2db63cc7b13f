// orrery run: executes a plan, on mpirun of its own or as one rank of a launcher's job.
#include <fmt/format.h>

#include <memory>

#include "base/error.h"
#include "cli/executor.h"
#include "cli/plan_file.h"
#include "cli/verbs.h"
#include "orrery/orrery.h"

namespace orrery::cli {
namespace {

struct Options {
  std::string plan, backend = "auto", data, trace, json;
  std::string vocabulary, checkpoint_folder, init, save;
  std::optional<int> steps, checkpoint_every, restart_from;
  std::string on_nan;
  bool restart = false;
  std::string learning_rate, base_batch, warmup_steps;  // as given: the executor reads them
  std::string mpi;
  LaunchWords launch;
};

int run(const Options& options) {
  check_backend(options.backend);
  const Plan plan = load_plan(options.plan);  // a bad file is said once, before any rank starts
  std::vector<std::string> arguments = {"run", options.plan};
  const auto pass = [&](const char* name, const std::string& value) {
    if (!value.empty()) arguments.insert(arguments.end(), {name, value});
  };
  if (options.steps) pass("--steps", std::to_string(*options.steps));
  pass("--learning-rate", options.learning_rate);
  pass("--base-batch", options.base_batch);
  pass("--warmup-steps", options.warmup_steps);
  pass("--backend", options.backend);
  pass("--data", options.data);
  pass("--vocab", options.vocabulary);
  pass("--trace", options.trace);
  pass("--json", options.json);
  pass("--checkpoint-dir", options.checkpoint_folder);
  if (options.checkpoint_every) pass("--checkpoint-every", std::to_string(*options.checkpoint_every));
  if (options.restart) arguments.emplace_back("--restart");
  if (options.restart_from) pass("--restart-from", std::to_string(*options.restart_from));
  pass("--on-nan", options.on_nan);
  pass("--init", options.init);
  pass("--save", options.save);
  const int ranks = plan.choices.world();
  return launch_executor(parse_mpi(options.mpi), ranks, arguments,
                         placement_of(plan.job->cluster, ranks, options.launch));
}

constexpr int kMostSteps = 1'000'000'000;

// A number that the executor reads.
Setting passed_on(Option option, std::string& value, const Numbers& numbers) {
  option.range = range_of(numbers);
  return {std::move(option), [&value, numbers](const std::string& text) {
            value = text;
            return read_number(text, numbers).has_value();
          }};
}

void add_rate_options(Command& command, Options& options) {
  command.add(passed_on(
      {.key = "learning_rate", .unit = "RATE", .help = "of the optimizer", .fallback = "the plan's"},
      options.learning_rate, kPositive));
  command.add(passed_on({.key = "base_batch",
                         .unit = "SAMPLES",
                         .help = "linear scaling rule: the rate times global batch / SAMPLES",
                         .fallback = "not scaled"},
                        options.base_batch, kPositive));
  command.add(passed_on({.key = "warmup_steps",
                         .unit = "N",
                         .help = "the rate rises linearly over so many steps",
                         .fallback = "0"},
                        options.warmup_steps, {}));
}

void add_data_options(Command& command, Options& options) {
  command.add(text_option({.key = "data",
                           .unit = "PATH",
                           .help = "text to train on, a token a byte; for networks on images CIFAR-10's "
                                   "binary files or a folder of .ppm "
                                   "pictures for each class",
                           .fallback = "the GPL that every Debian carries, synthetic images"},
                          options.data));
  command.add(text_option({.key = "vocab",
                           .unit = "FOLDER",
                           .help = "folder of a GPT-2 vocabulary, vocab.json and merges.txt",
                           .fallback = "a token is a byte"},
                          options.vocabulary));
}

void add_checkpoint_options(Command& command, Options& options) {
  command.add(text_option({.key = "checkpoint_dir",
                           .unit = "FOLDER",
                           .help = "folder for checkpoints, which every rank must see",
                           .fallback = "none are written"},
                          options.checkpoint_folder));
  command.add(count_option({.key = "checkpoint_every",
                            .unit = "N",
                            .help = "steps between checkpoints",
                            .fallback = "none are written"},
                           options.checkpoint_every, {1, kMostSteps}));
  command.add(
      switch_option({.key = "restart",
                     .help = "go on from the folder's newest checkpoint, under this plan or another; --steps "
                             "counts from the beginning"},
                    options.restart));
  command.add(count_option({.key = "restart_from",
                            .unit = "STEP",
                            .help = "go on from the folder's checkpoint after so many steps, and no other",
                            .fallback = "the newest that is whole, with --restart"},
                           options.restart_from, {0, kMostSteps}));
  command.add(
      text_option({.key = "on_nan",
                   .unit = "stop|skip",
                   .help = "where the loss is not finite: end the run, or leave the update out and count it",
                   .fallback = "stop"},
                  options.on_nan));
  command.add(
      text_option({.key = "init",
                   .unit = "FILE|FOLDER",
                   .help = "start from a model's weights: a .safetensors file or a Hugging Face folder",
                   .fallback = "seeded"},
                  options.init));
  command.add(text_option({.key = "save",
                           .unit = "FILE",
                           .help = "write the weights at the end as safetensors under Hugging Face's names",
                           .fallback = "not written"},
                          options.save));
}

}  // namespace

Command run_command() {
  const auto options = std::make_shared<Options>();
  Command command{"run",
                  "executes a plan: trains for real",
                  {plan_option(options->plan), backend_option(options->backend), mpi_option(options->mpi)},
                  [options] { return run(*options); }};
  command.add(launch_options(options->launch));
  command.add(count_option({.key = "steps", .unit = "N", .help = "training steps", .fallback = "10"},
                           options->steps, {1, kMostSteps}));
  add_rate_options(command, *options);
  add_data_options(command, *options);
  add_checkpoint_options(command, *options);
  command.add(text_option(
      {.key = "trace", .unit = "FILE", .help = "write a Chrome/Perfetto trace", .fallback = "none written"},
      options->trace));
  command.add(text_option(
      {.key = "json", .unit = "FILE|-", .help = "write the result as one JSON object to FILE; - for stdout"},
      options->json));
  return command;
}

}  // namespace orrery::cli
