#include "exec/run/training.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/note.h"
#include "exec/communicators/clock.h"
#include "exec/communicators/gather.h"
#include "exec/data/image_data.h"
#include "exec/run/interpreter.h"
#include "exec/run/probe.h"
#include "exec/run/process_memory.h"
#include "exec/run/rank_run.h"
#include "exec/run/report.h"
#include "exec/run/run_report.h"
#include "exec/state/checkpoint.h"
#include "exec/state/digest.h"
#include "exec/state/initial_parameters.h"
#include "exec/state/whole_tensors.h"
#include "program/executable.h"
#include "program/lower/lowering.h"
#include "program/timeline.h"
#include "workloads/image_operator.h"

namespace orrery::exec {
namespace {

TextData text_of(const Plan& plan, const TrainingOptions& options) {
  const Training& training = plan.job->training;
  return {options.data.empty() ? kDefaultText : options.data, training.seq_len, training.seed,
          training.global_batch, options.vocabulary};
}

ImageData images_of(const Plan& plan, const TrainingOptions& options) {
  const Workload& workload = plan.job->workload;
  const Training& training = plan.job->training;
  return {options.data, picture_shape(workload), workload.operators.back().image->input.elements(),
          training.seed, training.global_batch};
}

std::string data_description(const Plan& plan, const TrainingOptions& options) {
  if (plan.job->workload.transformer) return options.data.empty() ? kDefaultText : options.data;
  return images_of(plan, options).description();
}

bool restarts(const TrainingOptions& options) {
  return options.restart || options.restart_from >= 0;
}

// The step to go on with, by the newest checkpoint; 0 where there is none. Throws NoAnswer where it is the
// last.
std::int64_t restart(const Plan& plan, const KeptState& kept, Interpreter& interpreter, Device& device,
                     Communicator& control, const TrainingOptions& options) {
  std::int64_t first_step = 0;
  const auto found = options.restart_from >= 0
                         ? checkpoint_after(options.checkpoint_folder, options.restart_from, control)
                         : newest_checkpoint(options.checkpoint_folder, control);
  if (found) {
    const TrainingCounts counts = load_checkpoint(*found, plan, kept, device, control.rank());
    interpreter.resume(counts.updates, counts.scaler);
    first_step = found->steps;
  }
  if (first_step >= options.steps)
    throw NoAnswer(fmt::format("{} has {} steps of {}: there is nothing left to train",
                               options.checkpoint_folder, first_step, options.steps));
  if (control.rank() == 0)
    fmt::print(stderr, "{}goes on after step {} of {}\n", kNote, first_step, options.steps);
  return first_step;
}

// Throws UserError where the data do not fit the model.
void check_data(const Plan& plan, const TrainingOptions& options) {
  const Workload& workload = plan.job->workload;
  if (!workload.transformer) {
    if (!options.vocabulary.empty())
      throw UserError("`vocab`: " + workload.name + " reads images", "no vocabulary");
    images_of(plan, options);
    return;
  }
  const TextData data = text_of(plan, options);
  const Transformer& model = *workload.transformer;
  if (data.largest_token() + (model.mlm_head ? 1 : 0) >= model.vocab)
    throw UserError(options.vocabulary + "/vocab.json", 0,
                    fmt::format("has token {}{} and the model a vocabulary of {}", data.largest_token(),
                                model.mlm_head ? " and the mask comes after it" : "", model.vocab),
                    "the model's own vocabulary");
}

// What `train` does once its interpreter is made.
void train_with(Interpreter& interpreter, const Plan& plan, const Program& program, Device& device,
                Communicator& world, Communicator& control, const TrainingOptions& options, RankReport mine) {
  Parameters& parameters = interpreter.parameters();
  const KeptState kept{parameters, interpreter.statistics(), interpreter.left_out()};
  if (!options.init.empty()) load_weights(options.init, plan, parameters, interpreter.statistics(), device);
  agree_on_parameters(program, parameters, device, control);
  OptimizerSettings settings = options.optimizer;
  settings.clip_norm = options.clip_norm.value_or(settings.clip_norm);
  interpreter.set_optimizer(settings);
  if (options.skip_not_finite) interpreter.skip_what_is_not_finite();
  if (restarts(options)) mine.first_step = restart(plan, kept, interpreter, device, control, options);

  const DeviceProfile& profile = plan.job->cluster.profile_of(0);
  std::optional<Reference> reference;
  if (options.pace && profile.reference_s > 0) reference.emplace(control);
  std::vector<double> paces;  // of the machine, between stretches of steps
  const auto note_pace = [&] {
    if (reference) paces.push_back(reference->pace(profile));
  };
  note_pace();
  LearningRate rate = options.learning_rate;
  rate.steps = options.steps;
  RankRun run(plan, interpreter, rate, mine.first_step, options.steps, clock_offset(control));
  control.barrier();
  mine.begin_s = run.now_s();
  for (std::int64_t step = mine.first_step; step < options.steps;) {
    const std::int64_t every = options.checkpoint_every;
    // Asynchronous workers have no steps to measure between.
    const bool step_by_step = reference && !plan.choices.asynchronous();
    const std::int64_t stretch = step_by_step ? 1 : every > 0 ? every - step % every : options.steps;
    const std::int64_t until = std::min(options.steps, step + stretch);
    run.train(step, until);
    note_pace();
    step = until;
    if (every == 0 || step % every != 0) continue;
    save_checkpoint(options.checkpoint_folder, {step, interpreter.updates(), interpreter.scaler()}, plan,
                    kept, device, control);
  }
  if (!options.save.empty())
    save_weights(options.save, plan, parameters, interpreter.statistics(), device, control);
  for (const Instruction& instruction : program.instructions)
    if (instruction.op == Op::compute) mine.flops += instruction.flops;
  mine.skipped_steps = plan.choices.asynchronous() ? 0 : options.steps - interpreter.updates();
  mine.allocated_bytes = static_cast<double>(device.peak_bytes());
  mine.resident_bytes = resident_peak_bytes();
  const auto digest = digest_parameters(plan, interpreter.parameters(), device, control);

  if (plan.choices.asynchronous()) mine.staleness = interpreter.servers().staleness();
  std::vector<RankNotes> notes;
  for (const std::string& bytes : gather_to_root(control, packed(run.notes(mine))))
    notes.push_back(unpacked(bytes));
  if (world.rank() != 0) return;

  const Merged merged = merge(plan, notes);
  std::vector<Program> programs;
  for (int rank = 0; rank < world.size(); ++rank) programs.push_back(lower(plan, rank));
  Json json = report(plan, merged, programs, digest,
                     {options.backend, options.library, device.name(), data_description(plan, options)});
  if (reference) json["machine_pace"] = pace_report(step_times(merged), paces);
  if (!options.timeline.empty()) write_file_atomically(options.timeline, serialized(merged.timeline));
  if (!options.trace.empty()) write_file_atomically(options.trace, chrome_trace(programs, merged.timeline));
  if (deliver(json, options.json)) print_summary(json);
}

}  // namespace

void check_training(const Plan& plan, const Communicator& world, const TrainingOptions& options) {
  if (plan.choices.world() != world.size())
    throw UserError(
        fmt::format("the plan is for {} ranks and {} were started", plan.choices.world(), world.size()),
        fmt::format("mpirun -np {}", plan.choices.world()));
  if (options.checkpoint_folder.empty() && (options.checkpoint_every > 0 || restarts(options)))
    throw UserError("`checkpoint_every` and `restart` have no folder", "`checkpoint_dir` FOLDER");
  if (options.checkpoint_every < 0) throw UserError("`checkpoint_every` is negative", "a number of steps");
  if (!options.init.empty()) check_weights(options.init, plan);
  const Optimizer optimizer = plan.job->training.optimizer;
  const bool adam = optimizer == Optimizer::adam || optimizer == Optimizer::adamw;
  for (const auto& [name, beta] :
       {std::pair{"beta1", options.optimizer.beta1}, {"beta2", options.optimizer.beta2}})
    if (beta >= 1)
      throw UserError(fmt::format("`{}` {}: its moments would never be anything", name, beta), "less than 1");
  if (!adam && (options.optimizer.weight_decay || options.optimizer.decay_matrices_only))
    throw UserError(fmt::format("`weight_decay` with {}", name_of(optimizer)), "a plan with adam or adamw");
  if (options.clip_norm && !plan.job->runtime.clip_gradients)
    throw UserError("`clip_norm` under a runtime that does not clip gradients",
                    "a plan of one whose profile says clip_gradients: true");
  if (options.skip_not_finite && plan.choices.asynchronous())
    throw UserError("`on_nan` skip with asynchronous servers, who apply what comes", "stop");
  if (options.steps < 1) throw UserError("`steps` " + std::to_string(options.steps), "at least 1");
  if (const auto refusal = why_not_executable(plan)) throw UserError(*refusal);
  check_data(plan, options);
}

void train(const Plan& plan, Device& device, Communicator& world, Communicator& control,
           const TrainingOptions& options) {
  check_training(plan, world, options);
  if (control.rank() == 0 && plan.job->workload.transformer && plan.job->workload.transformer->dropout > 0)
    fmt::print(stderr, "{}the configuration asks for dropout {}; none is applied\n", kNote,
               plan.job->workload.transformer->dropout);
  RankReport mine;
  mine.context_bytes = resident_bytes();
  const Program program = lower(plan, world.rank());
  std::optional<TextData> text;
  std::optional<ImageData> images;
  std::optional<Interpreter> chosen;
  if (plan.job->workload.transformer)
    chosen.emplace(plan, program, device, world, text.emplace(text_of(plan, options)));
  else
    chosen.emplace(plan, program, device, world, images.emplace(images_of(plan, options)));
  try {
    train_with(*chosen, plan, program, device, world, control, options, mine);
  } catch (const std::exception& error) {
    if (options.failed) options.failed(error);
    throw;
  }
}

}  // namespace orrery::exec
