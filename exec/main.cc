// orrery-exec-<mpi>: one rank of a training job. Started by mpirun, mpiexec or srun; `orrery run` does that.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/option.h"
#include "exec/calibration/calibrate.h"
#include "exec/calibration/calibrate_network.h"
#include "exec/communicators/collectives.h"
#include "exec/engine.h"
#include "exec/gpu_engine.h"
#include "exec/mpi/mpi_transport.h"
#include "exec/run/training.h"
#include "topologies/readers/cluster_file.h"

namespace orrery::exec {
namespace {

struct Arguments {
  std::string plan;
  std::shared_ptr<Plan> loaded;   // what `plan` holds
  std::exception_ptr not_loaded;  // or why it could not be read, which is said once MPI says who is first
  TrainingOptions training;
  CalibrationOptions calibration;
  NetworkCalibrationOptions network;
  std::vector<Setting> settings;  // what errors below quote by its key and people write as a flag
};

std::vector<Setting> named_in_errors(const CLI::App& verb) {
  std::vector<Setting> settings;
  for (const CLI::Option* option : verb.get_options())
    for (const std::string& name : option->get_lnames()) settings.push_back({{.key = option_key(name)}});
  return settings;
}

int exit_code(const std::exception& error) {
  if (dynamic_cast<const UserError*>(&error) != nullptr) return 2;
  return dynamic_cast<const NoAnswer*>(&error) != nullptr ? 3 : 1;
}

// Ends the job by what this rank has met.
[[noreturn]] void end_job(const MpiWorld& world, const Arguments& arguments, const std::exception& error) {
  const int code = exit_code(error);
  // What the user has got wrong most ranks see: the first says it, and they end with it.
  constexpr std::chrono::milliseconds kTimeOfTheFirst(500);
  if (code != 1 && world.rank() != 0) std::this_thread::sleep_for(kTimeOfTheFirst);
  fmt::print(stderr, "orrery: rank {}: {}\n", world.rank(), with_flags(error.what(), arguments.settings));
  std::fflush(nullptr);
  world.abort(code);
}

// Runs `work` on every rank. An error that all ranks meet alike (the plan, the options) is said once; another
// ends the job, whichever rank it was.
int guarded(const MpiWorld& world, const Arguments& arguments, bool alike,
            const std::function<void()>& work) {
  try {
    work();
    return 0;
  } catch (const std::exception& error) {
    if (!alike) end_job(world, arguments, error);
    if (world.rank() == 0) fmt::print(stderr, "orrery: {}\n", with_flags(error.what(), arguments.settings));
    return exit_code(error);
  }
}

Cutting cutting_of(const Cluster& cluster) {
  return cluster.fabric.transport == Transport::tcp ? Cutting::between_machines : Cutting::never;
}

void load(Arguments& arguments) {
  try {
    arguments.loaded = std::make_shared<Plan>(load_plan(arguments.plan));
  } catch (...) {
    arguments.not_loaded = std::current_exception();
  }
}

int run(const MpiWorld& world, const Arguments& arguments) {
  const auto read = [&] {
    if (arguments.not_loaded) std::rethrow_exception(arguments.not_loaded);
  };
  if (const int code = guarded(world, arguments, true, read); code != 0) return code;
  Plan& plan = *arguments.loaded;
  if (arguments.training.seed || plan.job->runtime.partitioned_messages) {
    auto job = std::make_shared<Job>(*plan.job);
    if (arguments.training.seed) job->training.seed = *arguments.training.seed;
    job->runtime.partitioned_messages = false;  // messages are sent whole here
    plan.job = job;
  }
  auto control = make_communicator(world.transport(cutting_of(plan.job->cluster)));
  TrainingOptions options = arguments.training;
  options.library = world.library();
  if (const int code = guarded(world, arguments, true,
                               [&] {
                                 check_backend(options.backend);
                                 check_training(plan, *control, options);
                               });
      code != 0)
    return code;
  return guarded(world, arguments, false, [&] {
    Engine engine = make_engine(options.backend, plan, *control);
    options.backend = engine.backend;
    options.failed = [&](const std::exception& error) { end_job(world, arguments, error); };
    options.done_without_all = [] {
      std::fflush(nullptr);
      _exit(0);
    };
    train(plan, *engine.device, engine.world ? *engine.world : *control, *control, options);
    write_to_stdout("");
  });
}

int measure(const MpiWorld& world, const Arguments& arguments) {
  auto communicator = make_communicator(world.transport(Cutting::never));
  CalibrationOptions options = arguments.calibration;
  options.library = world.library();
  options.command = fmt::format("mpirun -np {} orrery-exec-{} calibrate", communicator->size(), mpi_name());
  return guarded(world, arguments, false, [&] { calibrate(*communicator, options); });
}

int measure_network(const MpiWorld& world, const Arguments& arguments) {
  Cutting cutting = Cutting::never;
  const auto read = [&] { cutting = cutting_of(read_cluster_file(arguments.network.cluster)); };
  if (const int code = guarded(world, arguments, true, read); code != 0) return code;
  auto communicator = make_communicator(world.transport(cutting));
  NetworkCalibrationOptions options = arguments.network;
  options.library = world.library();
  return guarded(world, arguments, true, [&] { calibrate_network(*communicator, options); });
}

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_DFL);  // which the launcher ignores (exec/launch/child.h)
  CLI::App app{"Trains what a plan says, as one rank of an MPI job (orrery run starts it)",
               fmt::format("orrery-exec-{}", mpi_name())};
  app.set_version_flag("--version", fmt::format(ORRERY_VERSION " ({})", mpi_name()));
  app.require_subcommand(1);
  Arguments arguments;
  TrainingOptions& training = arguments.training;
  constexpr const char* kJsonHelp = "Write the result as JSON to this file; - for stdout";
  CLI::App* run_verb = app.add_subcommand("run", "Execute a plan");
  run_verb->add_option("plan", arguments.plan, "Plan file, as orrery plan --out writes it")->required();
  run_verb->add_option("--steps", training.steps, "Training steps")->capture_default_str();
  run_verb->add_option(
      "--data", training.data,
      "Text file, a token a byte (default: the GPL); for networks on images CIFAR-10's binary files or a "
      "folder of JPEG, PNG or PPM pictures for each class (default: synthetic images)");
  LearningRate& rate = training.learning_rate;
  run_verb->add_option("--learning-rate", rate.base, "Instead of the plan's")->check(CLI::PositiveNumber);
  run_verb->add_option("--base-batch", rate.base_batch, "Samples the rate was meant for: scaled to the batch")
      ->check(CLI::PositiveNumber);
  run_verb->add_option("--warmup-steps", rate.warmup_steps, "Steps over which the rate rises to its value")
      ->check(CLI::NonNegativeNumber);
  const std::map<std::string, RateSchedule> schedules = {{"constant", RateSchedule::constant},
                                                         {"linear", RateSchedule::linear},
                                                         {"cosine", RateSchedule::cosine},
                                                         {"wsd", RateSchedule::wsd}};
  run_verb->add_option("--rate-schedule", rate.schedule, "constant, linear, cosine or wsd")
      ->transform(CLI::CheckedTransformer(schedules));
  run_verb->add_option("--decay-steps", rate.decay_steps, "wsd: the last so many go down")
      ->check(CLI::NonNegativeNumber);
  run_verb->add_option("--least-rate", rate.least, "At the end, as a share of the rate")
      ->check(CLI::Range(0.0, 1.0));
  OptimizerSettings& optimizer = training.optimizer;
  run_verb->add_option("--weight-decay", optimizer.weight_decay, "Of adam and adamw")
      ->check(CLI::NonNegativeNumber);
  run_verb->add_flag("--decay-matrices-only", optimizer.decay_matrices_only, "Not of biases and norms");
  run_verb->add_option("--momentum", optimizer.momentum)->check(CLI::Range(0.0, 1.0));
  run_verb->add_option("--beta1", optimizer.beta1)->check(CLI::Range(0.0, 1.0));
  run_verb->add_option("--beta2", optimizer.beta2)->check(CLI::Range(0.0, 1.0));
  run_verb->add_option("--epsilon", optimizer.epsilon)->check(CLI::PositiveNumber);
  run_verb->add_option("--clip-norm", training.clip_norm)->check(CLI::PositiveNumber);
  run_verb->add_option("--seed", training.seed, "Instead of the plan's");
  run_verb->add_option(
      "--vocab", training.vocabulary,
      "tokenizer.json, BERT's vocab.txt, or the folder of one or of GPT-2's vocab.json and merges.txt");
  run_verb->add_option("--json", training.json, kJsonHelp);
  run_verb
      ->add_option("--backend", training.backend,
                   "mpi (processors), nccl (GPUs), cuda-mpi (GPUs, messages staged through the host) or "
                   "auto: GPUs where the plan is for GPUs and this machine has one")
      ->capture_default_str();
  run_verb->add_option("--checkpoint-dir", training.checkpoint_folder,
                       "Folder of checkpoints, seen by every rank");
  run_verb->add_option("--checkpoint-every", training.checkpoint_every, "Write one after so many steps");
  run_verb->add_flag("--restart", training.restart, "Go on from the newest checkpoint, where there is one");
  run_verb
      ->add_option("--restart-from", training.restart_from, "Go on from the checkpoint after so many steps")
      ->check(CLI::NonNegativeNumber);
  run_verb
      ->add_option_function<std::string>(
          "--on-nan", [&training](const std::string& what) { training.skip_not_finite = what == "skip"; },
          "What a loss that is not finite does: stop, or skip the update")
      ->check(CLI::IsMember({"stop", "skip"}));
  run_verb->add_option("--eval-data", training.eval_data, "Held-out text");
  run_verb->add_option("--eval-every", training.eval_every, "Evaluate after so many steps")
      ->check(CLI::NonNegativeNumber);
  run_verb->add_option("--eval-batches", training.eval_batches, "Of the held-out text")
      ->check(CLI::NonNegativeNumber);
  run_verb
      ->add_option("--patience", training.patience, "End after so many evaluations without a new least loss")
      ->check(CLI::NonNegativeNumber);
  run_verb
      ->add_option("--silence", training.silence_s,
                   "Asynchronous servers: leave a worker behind that says nothing for so many seconds")
      ->check(CLI::NonNegativeNumber);
  run_verb->add_option("--log", training.log, "A line of JSON for each step");
  run_verb->add_option("--tensorboard", training.tensorboard, "Folder of TensorBoard's event files");
  run_verb
      ->add_option_function<std::string>(
          "--augment",
          [&training](const std::string& how) {
            training.augmentation = how == "flip"   ? Augmentation::flip
                                    : how == "none" ? Augmentation::none
                                                    : Augmentation::crop_flip;
          },
          "How pictures vary")
      ->check(CLI::IsMember({"none", "flip", "crop-flip"}));
  run_verb->add_flag("--progress", training.progress, "A line on stderr now and then");
  run_verb->add_option("--predicted-step", training.predicted_step_s, "Seconds, for --progress");
  run_verb->add_flag("--print-batches", training.print_batches, "Print what each step trains on, and end");
  run_verb->add_option("--init", training.init, "Start from these safetensors (a file, or a model's folder)");
  run_verb->add_option("--save", training.save,
                       "Write the weights as safetensors at the end; into a FOLDER/ with their config.json");
  run_verb->add_option("--timeline", training.timeline,
                       "Write when each instruction ran, as proto::Timeline");
  run_verb->add_flag("--pace", training.pace,
                     "Measure, between steps, how fast this machine is beside the day of its calibration");
  run_verb->add_option("--trace", training.trace, "Write a trace for Perfetto or chrome://tracing");
  CLI::App* calibrate_verb =
      app.add_subcommand("calibrate", "Measure this machine; start it on as many ranks as there are cores");
  calibrate_verb->add_option("--out", arguments.calibration.out,
                             "Cluster file to write; without it the one that plans on localhost read");
  calibrate_verb->add_option("--observations", arguments.calibration.observations,
                             "Write the raw measurements beside the fit's predictions as CSV");
  calibrate_verb->add_option("--json", arguments.calibration.json, kJsonHelp);
  CLI::App* network_verb =
      app.add_subcommand("calibrate-network", "Measure a cluster's links; start it with a rank a node");
  network_verb->add_option("cluster", arguments.network.cluster, "Description of the cluster")->required();
  network_verb->add_option("--host", arguments.network.host, "What `calibrate` wrote on one of its hosts")
      ->required();
  network_verb->add_option("--out", arguments.network.out, "Cluster file to write")->required();
  network_verb->add_option("--json", arguments.network.json, kJsonHelp);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& wanted) {
    return app.exit(wanted);
  } catch (const CLI::ParseError& error) {
    fmt::print(stderr, "orrery: {}\n", error.what());
    return 2;
  }
  arguments.settings = named_in_errors(*run_verb);
  for (const CLI::Option* option : run_verb->get_options())
    if (option->count() > 0)
      for (const std::string& name : option->get_lnames()) training.given.insert(option_key(name));
  if (run_verb->parsed()) {
    load(arguments);
    if (arguments.loaded && wants_gpus(training.backend, *arguments.loaded)) become_cuda_program(argv);
  }
  const MpiWorld world(&argc, &argv);
  if (calibrate_verb->parsed()) return measure(world, arguments);
  return network_verb->parsed() ? measure_network(world, arguments) : run(world, arguments);
}

}  // namespace
}  // namespace orrery::exec

int main(int argc, char** argv) {
  return orrery::exec::main(argc, argv);
}
