// orrery run: executes a plan, on mpirun of its own or as one rank of a launcher's job.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "base/error.h"
#include "cli/executor.h"
#include "cli/plan_file.h"
#include "cli/verbs.h"
#include "orrery/orrery.h"
#include "orrery/validate.h"

namespace orrery::cli {
namespace {

struct RunOptions {
  std::string plan, backend = "auto", data, trace, json;
  std::string vocabulary, checkpoint_folder, init, save;
  std::optional<int> steps, checkpoint_every, restart_from;
  std::string on_nan, eval_data, log, tensorboard, augment;
  std::optional<int> eval_every, eval_batches, patience;
  bool progress = false, print_batches = false;
  bool restart = false;
  // As given: the executor reads them.
  std::string learning_rate, base_batch, warmup_steps, rate_schedule, decay_steps, least_rate;
  std::string weight_decay, momentum, beta1, beta2, epsilon, clip_norm, silence;
  std::optional<std::uint64_t> seed;
  bool decay_matrices_only = false;
  std::string mpi;
  LaunchWords launch;
};

int run_plan_here(const RunOptions& options) {
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
  for (const auto& [name, value] : std::initializer_list<std::pair<const char*, const std::string&>>{
           {"--rate-schedule", options.rate_schedule},
           {"--decay-steps", options.decay_steps},
           {"--least-rate", options.least_rate},
           {"--weight-decay", options.weight_decay},
           {"--momentum", options.momentum},
           {"--beta1", options.beta1},
           {"--beta2", options.beta2},
           {"--epsilon", options.epsilon},
           {"--clip-norm", options.clip_norm},
           {"--silence", options.silence}})
    pass(name, value);
  if (options.seed) pass("--seed", std::to_string(*options.seed));
  if (options.decay_matrices_only) arguments.emplace_back("--decay-matrices-only");
  if (options.restart) arguments.emplace_back("--restart");
  if (options.restart_from) pass("--restart-from", std::to_string(*options.restart_from));
  pass("--on-nan", options.on_nan);
  pass("--eval-data", options.eval_data);
  if (options.eval_every) pass("--eval-every", std::to_string(*options.eval_every));
  if (options.eval_batches) pass("--eval-batches", std::to_string(*options.eval_batches));
  if (options.patience) pass("--patience", std::to_string(*options.patience));
  pass("--log", options.log);
  pass("--tensorboard", options.tensorboard);
  pass("--augment", options.augment);
  if (options.print_batches) arguments.emplace_back("--print-batches");
  if (options.progress) {
    arguments.emplace_back("--progress");
    pass("--predicted-step", fmt::format("{}", simulate({plan, {}}).evaluation.step_time_s()));
  }
  pass("--init", options.init);
  pass("--save", options.save);
  const int ranks = plan.choices.world();
  Placement placement = placement_of(plan.job->cluster, ranks, options.launch);
  placement.outlives_ranks = !options.silence.empty();
  if (placement.outlives_ranks && !plan.choices.asynchronous())
    throw UserError(
        fmt::format("`silence` with `sync` {}: all wait for each other", name_of(plan.choices.sync)),
        std::string(name_of(Sync::async_parameter_server)));
  if (!options.print_batches) check_processors(plan, placement, options.backend);
  return launch_executor(parse_mpi(options.mpi), ranks, arguments, placement);
}

constexpr int kMostSteps = 1'000'000'000;

constexpr Numbers kShare = {0, false, 1};

// A number that the executor reads.
Setting passed_on(Option option, std::string& value, const Numbers& numbers) {
  option.range = range_of(numbers);
  return {std::move(option), [&value, numbers](const std::string& text) {
            value = text;
            return read_number(text, numbers).has_value();
          }};
}

// One of some words, which the executor knows.
Setting word_passed_on(Option option, std::string& value, std::vector<std::string> words) {
  option.unit = fmt::format("{}", fmt::join(words, "|"));
  option.range = fmt::format("one of {}", fmt::join(words, ", "));
  return {std::move(option), [&value, words = std::move(words)](const std::string& text) {
            value = lower_case(text);
            return std::find(words.begin(), words.end(), value) != words.end();
          }};
}

void add_rate_options(Command& command, RunOptions& options) {
  command.add(passed_on({.key = "learning_rate",
                         .unit = "RATE",
                         .help = "learning rate of the optimizer",
                         .fallback = "the plan's"},
                        options.learning_rate, kPositive));
  command.add(passed_on({.key = "base_batch",
                         .unit = "SAMPLES",
                         .help = "scale the learning rate linearly: rate times global batch / SAMPLES",
                         .fallback = "not scaled"},
                        options.base_batch, kPositive));
  command.add(passed_on({.key = "warmup_steps",
                         .unit = "N",
                         .help = "steps over which the learning rate rises linearly from 0",
                         .fallback = "0"},
                        options.warmup_steps, {}));
  command.add(word_passed_on(
      {.key = "rate_schedule",
       .help = "how the learning rate falls from the warm-up to the last step; wsd: over the last steps only",
       .fallback = "constant"},
      options.rate_schedule, {"constant", "linear", "cosine", "wsd"}));
  command.add(passed_on({.key = "decay_steps",
                         .unit = "N",
                         .help = "with wsd: last steps, over which the learning rate falls",
                         .fallback = "a tenth of all"},
                        options.decay_steps, {}));
  command.add(passed_on({.key = "least_rate",
                         .unit = "SHARE",
                         .help = "learning rate at the end of the schedule, as a share of the whole",
                         .fallback = "0"},
                        options.least_rate, kShare));
}

void add_optimizer_options(Command& command, RunOptions& options) {
  const auto number = [&](const char* key, const char* unit, const char* help, const char* fallback,
                          std::string& value, const Numbers& numbers) {
    command.add(passed_on({.key = key, .unit = unit, .help = help, .fallback = fallback}, value, numbers));
  };
  number("weight_decay", "D",
         "weight decay of adam (added to the gradient) and adamw (subtracted from the weight)",
         "0; adamw: 0.01", options.weight_decay, {});
  command.add(switch_option({.key = "decay_matrices_only", .help = "do not decay biases and norms"},
                            options.decay_matrices_only));
  number("momentum", "M", "momentum of the optimizer `momentum`", "0.9", options.momentum, kShare);
  number("beta1", "B", "decay of the first moment of adam and adamw", "0.9", options.beta1, kShare);
  number("beta2", "B", "decay of their second moment", "0.999", options.beta2, kShare);
  number("epsilon", "E", "epsilon of adam and adamw", "1e-8", options.epsilon, kPositive);
  number("clip_norm", "N", "largest norm of all gradients together, where the plan's runtime clips", "1",
         options.clip_norm, kPositive);
  command.add(count_option({.key = "seed",
                            .unit = "N",
                            .help = "seed of the first weights and of the order of the data",
                            .fallback = "the plan's"},
                           options.seed, {0, std::numeric_limits<std::int64_t>::max()}));
}

void add_data_options(Command& command, RunOptions& options) {
  command.add(text_option(
      {.key = "data",
       .unit = "PATH",
       .help =
           "what to train on: text (a byte is a token) or tokens (.bin of Megatron, llm.c or nanoGPT); for "
           "image networks CIFAR-10's binary files or a folder of JPEG, PNG or PPM pictures per class",
       .fallback = "the text of the GPL, or synthetic images"},
      options.data));
  command.add(text_option(
      {.key = "vocab",
       .unit = "FOLDER",
       .help =
           "a tokenizer.json, BERT's vocab.txt, or the folder of one or of GPT-2's vocab.json and merges.txt",
       .fallback = "a token is a byte"},
      options.vocabulary));
}

void add_checkpoint_options(Command& command, RunOptions& options) {
  command.add(text_option({.key = "checkpoint_dir",
                           .unit = "FOLDER",
                           .help = "folder for checkpoints, visible to every rank",
                           .fallback = "none are written"},
                          options.checkpoint_folder));
  command.add(count_option({.key = "checkpoint_every",
                            .unit = "N",
                            .help = "steps between checkpoints",
                            .fallback = "none are written"},
                           options.checkpoint_every, {1, kMostSteps}));
  command.add(switch_option({.key = "restart",
                             .help = "continue from the folder's newest checkpoint, whatever plan wrote it; "
                                     "--steps counts from the beginning"},
                            options.restart));
  command.add(count_option({.key = "restart_from",
                            .unit = "STEP",
                            .help = "continue from the folder's checkpoint of this step",
                            .fallback = "with --restart the newest complete one"},
                           options.restart_from, {0, kMostSteps}));
  command.add(
      word_passed_on({.key = "on_nan",
                      .help = "when the loss is not finite: stop the run, or skip the update and count it",
                      .fallback = "stop"},
                     options.on_nan, {"stop", "skip"}));
  command.add(
      passed_on({.key = "silence",
                 .unit = "SECONDS",
                 .help = "with asynchronous servers: continue without a worker that has been silent for so "
                         "long; another worker trains its batch",
                 .fallback = "the job ends"},
                options.silence, kPositive));
  command.add(
      text_option({.key = "init",
                   .unit = "FILE|FOLDER",
                   .help = "start from a model's weights: a .safetensors file or a Hugging Face folder",
                   .fallback = "seeded"},
                  options.init));
  command.add(text_option(
      {.key = "save",
       .unit = "FILE|FOLDER",
       .help = "write the final weights as safetensors under Hugging Face's names; into a FOLDER/ "
               "with the config.json that `transformers` loads them by",
       .fallback = "not written"},
      options.save));
}

void add_watching_options(Command& command, RunOptions& options) {
  command.add(text_option(
      {.key = "eval_data",
       .unit = "PATH",
       .help = "held-out text: report its loss and perplexity at the end, and every --eval-every steps",
       .fallback = "none is evaluated"},
      options.eval_data));
  command.add(count_option(
      {.key = "eval_every", .unit = "N", .help = "steps between evaluations", .fallback = "only at the end"},
      options.eval_every, {1, kMostSteps}));
  command.add(count_option(
      {.key = "eval_batches", .unit = "N", .help = "batches per evaluation", .fallback = "all of the text"},
      options.eval_batches, {1, kMostSteps}));
  command.add(count_option({.key = "patience",
                            .unit = "N",
                            .help = "stop after N evaluations without a lower loss",
                            .fallback = "never"},
                           options.patience, {1, kMostSteps}));
  command.add(text_option({.key = "log",
                           .unit = "FILE",
                           .help = "write one JSON object per line for each step, evaluation and checkpoint",
                           .fallback = "none written"},
                          options.log));
  command.add(text_option({.key = "tensorboard",
                           .unit = "FOLDER",
                           .help = "write TensorBoard event files: losses, learning rates, evaluations",
                           .fallback = "none written"},
                          options.tensorboard));
  command.add(word_passed_on({.key = "augment",
                              .help = "change pictures at random by the seed. flip: mirror half of them; "
                                      "crop-flip: cut out a part and mirror half of them (docs/executor.md)",
                              .fallback = "none"},
                             options.augment, {"none", "flip", "crop-flip"}));
  command.add(switch_option(
      {.key = "progress",
       .help =
           "report on stderr every two seconds how far training is and its pace beside the predicted one"},
      options.progress));
  command.add(switch_option({.key = "print_batches",
                             .help = "train nothing; print one JSON object per step with where each sample "
                                     "begins in the data (for images: which picture, and which part)"},
                            options.print_batches));
}

}  // namespace

Command run_command() {
  const auto options = std::make_shared<RunOptions>();
  Command command{"run",
                  "trains by a plan, for real",
                  {plan_option(options->plan), backend_option(options->backend), mpi_option(options->mpi)},
                  [options] { return run_plan_here(*options); }};
  command.add(launch_options(options->launch));
  command.add(count_option({.key = "steps", .unit = "N", .help = "training steps", .fallback = "10"},
                           options->steps, {1, kMostSteps}));
  add_rate_options(command, *options);
  add_optimizer_options(command, *options);
  add_data_options(command, *options);
  add_checkpoint_options(command, *options);
  add_watching_options(command, *options);
  command.add(text_option(
      {.key = "trace", .unit = "FILE", .help = "write a Chrome/Perfetto trace", .fallback = "none written"},
      options->trace));
  command.add(text_option(
      {.key = "json", .unit = "FILE|-", .help = "write the result as one JSON object to FILE; - for stdout"},
      options->json));
  return command;
}

}  // namespace orrery::cli
