// orrery run: executes a plan, on mpirun of its own or as one rank of a launcher's job.
#include <fmt/format.h>

#include <memory>

#include "base/error.h"
#include "cli/executor.h"
#include "cli/verbs.h"
#include "orrery/orrery.h"

namespace orrery::cli {
namespace {

struct Options {
  std::string plan, backend = "auto", data, trace, json;
  std::string vocabulary, checkpoint_folder, init, save;
  std::optional<int> steps, checkpoint_every;
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
  pass("--init", options.init);
  pass("--save", options.save);
  const int ranks = plan.choices.world();
  return launch_executor(parse_mpi(options.mpi), ranks, arguments,
                         placement_of(plan.job->cluster, ranks, options.launch));
}

}  // namespace

void add_run(CLI::App& app, Action& action) {
  auto* verb = app.add_subcommand("run", "executes a plan: trains for real");
  const auto options = std::make_shared<Options>();
  verb->add_option("PLAN", options->plan, "a plan that `orrery plan --out` wrote")->required();
  add_backend_option(*verb, options->backend);
  add_mpi_option(*verb, options->mpi);
  add_launch_options(*verb, options->launch);
  verb->add_option("--steps", options->steps, "training steps (default: 10)")
      ->check(CLI::Range(1, 1'000'000'000).description(""))
      ->type_name("N");
  verb->add_option("--learning-rate", options->learning_rate, "instead of the plan's")
      ->check(CLI::PositiveNumber.description(""))
      ->type_name("RATE");
  verb->add_option("--base-batch", options->base_batch,
                   "linear scaling rule: the rate times global batch / SAMPLES (default: not scaled)")
      ->check(CLI::PositiveNumber.description(""))
      ->type_name("SAMPLES");
  verb->add_option("--warmup-steps", options->warmup_steps,
                   "the rate rises linearly over so many steps (default: 0)")
      ->check(CLI::NonNegativeNumber.description(""))
      ->type_name("N");
  verb->add_option(
          "--data", options->data,
          "text to train on, a token a byte (default: the GPL that every Debian carries); for networks "
          "on images CIFAR-10's binary files or a folder of .ppm pictures for each class (default: "
          "synthetic images)")
      ->type_name("PATH");
  verb->add_option("--vocab", options->vocabulary,
                   "folder of a GPT-2 vocabulary, vocab.json and merges.txt (default: a token is a byte)")
      ->type_name("FOLDER");
  verb->add_option("--checkpoint-dir", options->checkpoint_folder,
                   "folder for checkpoints, which every rank must see (default: none are written)")
      ->type_name("FOLDER");
  verb->add_option("--checkpoint-every", options->checkpoint_every,
                   "steps between checkpoints (default: none are written)")
      ->check(CLI::Range(1, 1'000'000'000).description(""))
      ->type_name("N");
  verb->add_flag(
      "--restart", options->restart,
      "go on from the folder's newest checkpoint, under this plan or another; --steps counts from the "
      "beginning");
  verb->add_option(
          "--init", options->init,
          "start from a model's weights: a .safetensors file or a Hugging Face folder (default: seeded)")
      ->type_name("FILE|FOLDER");
  verb->add_option(
          "--save", options->save,
          "write the weights at the end as safetensors under Hugging Face's names (default: not written)")
      ->type_name("FILE");
  verb->add_option("--trace", options->trace, "write a Chrome/Perfetto trace (default: none written)")
      ->type_name("FILE");
  verb->add_option("--json", options->json, "write the result as one JSON object to FILE; - for stdout")
      ->type_name("FILE|-");
  verb->callback([&action, options] { action = [options] { return run(*options); }; });
}

}  // namespace orrery::cli
