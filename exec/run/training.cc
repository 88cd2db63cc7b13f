#include "exec/run/training.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/note.h"
#include "exec/communicators/clock.h"
#include "exec/communicators/gather.h"
#include "exec/data/image_data.h"
#include "exec/launch/launcher.h"
#include "exec/math/objective.h"
#include "exec/run/evaluation.h"
#include "exec/run/interpreter.h"
#include "exec/run/probe.h"
#include "exec/run/process_memory.h"
#include "exec/run/progress.h"
#include "exec/run/rank_run.h"
#include "exec/run/report.h"
#include "exec/run/run_report.h"
#include "exec/state/checkpoint.h"
#include "exec/state/digest.h"
#include "exec/state/initial_parameters.h"
#include "exec/state/whole_tensors.h"
#include "program/executable/executable.h"
#include "program/lower/lowering.h"
#include "program/timeline.h"
#include "workloads/huggingface_config.h"
#include "workloads/image_operator.h"

namespace orrery::exec {
namespace {

// Or folder; empty: synthetic.
std::string data_file(const Plan& plan, const TrainingOptions& options) {
  return options.data.empty() && plan.job->workload.transformer ? kDefaultText : options.data;
}

TextData text_of(const Plan& plan, const TrainingOptions& options) {
  const Training& training = plan.job->training;
  return {data_file(plan, options), training.seq_len,   training.seed,
          training.global_batch,    options.vocabulary, plan.job->workload.transformer->vocab};
}

ImageData images_of(const Plan& plan, const TrainingOptions& options) {
  const Workload& workload = plan.job->workload;
  const Training& training = plan.job->training;
  return {options.data,  picture_shape(workload), workload.operators.back().image->input.elements(),
          training.seed, training.global_batch,   options.augmentation};
}

std::string data_description(const Plan& plan, const TrainingOptions& options) {
  if (plan.job->workload.transformer) return data_file(plan, options);
  return images_of(plan, options).description();
}

bool restarts(const TrainingOptions& options) {
  return options.restart || options.restart_from >= 0;
}

// The step to go on with, by the newest checkpoint; 0 where there is none. Throws NoAnswer where it is the
// last.
std::int64_t restart(const Plan& plan, const KeptState& kept, Interpreter& interpreter, Device& device,
                     Communicator& control, const TrainingOptions& options, const DataMark& data) {
  std::int64_t first_step = 0;
  const auto found = options.restart_from >= 0
                         ? checkpoint_after(options.checkpoint_folder, options.restart_from, control)
                         : newest_checkpoint(options.checkpoint_folder, control);
  if (found) {
    const TrainingCounts counts = load_checkpoint(*found, plan, kept, device, control.rank());
    if (control.rank() == 0)
      if (const std::string other = differs(*found, plan, data); !other.empty())
        fmt::print(stderr, "{}{}\n", kNote, other);
    interpreter.resume(counts.updates, counts.scaler);
    first_step = found->steps;
  }
  if (first_step >= options.steps)
    throw NoAnswer(fmt::format("{} has {} steps of {}: there is nothing left to train",
                               options.checkpoint_folder, first_step, options.steps));
  if (control.rank() == 0 && found)
    fmt::print(stderr, "{}goes on after step {} of {}\n", kNote, first_step, options.steps);
  else if (control.rank() == 0)
    fmt::print(stderr, "{}{} has no checkpoint: training begins with step 1\n", kNote,
               options.checkpoint_folder);
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
  const std::optional<std::int32_t> largest = data.largest_token();
  if (!largest && model.mlm_head)
    throw UserError(options.data, 0, "is a file of tokens, which does not say the mask's",
                    "a text, with its `vocab`");
  const bool adds_mask = model.mlm_head && !data.mask_token();
  if (largest && *largest + (adds_mask ? 1 : 0) >= model.vocab)
    throw UserError(options.vocabulary.empty() ? data.file() : options.vocabulary, 0,
                    fmt::format("has token {}{} and the model a vocabulary of {}", *largest,
                                adds_mask ? " and the mask comes after it" : "", model.vocab),
                    "the model's own vocabulary");
}

void check_augmentation(const Plan& plan, const TrainingOptions& options) {
  if (options.augmentation == Augmentation::none) return;
  if (plan.job->workload.transformer)
    throw UserError("`augment`: " + plan.job->workload.name + " reads text", "a network on images");
  if (options.data.empty()) throw UserError("`augment` without pictures", "`data` FOLDER");
}

// Where something is due next beside training.
std::int64_t next_stop(const TrainingOptions& options, std::int64_t step) {
  std::int64_t next = options.steps;
  for (const std::int64_t every : {options.checkpoint_every, options.eval_every})
    if (every > 0) next = std::min(next, (step / every + 1) * every);
  return next;
}

// What each step trains on, so that anyone can do the same elsewhere: a line of JSON a step. Of a model that
// learns hidden tokens, the positions that are asked for and what stands there instead, too.
void print_batches(const Plan& plan, const TextData& text, std::int64_t steps) {
  const bool hides = plan.job->workload.transformer->mlm_head;
  const auto seq_len = static_cast<std::size_t>(plan.job->training.seq_len);
  std::vector<std::int32_t> tokens(seq_len), targets(seq_len);
  for (std::int64_t step = 0; step < steps; ++step) {
    Json begins = Json::array(), hidden = Json::array();
    for (std::int64_t sample = 0; sample < plan.job->training.global_batch; ++sample) {
      begins.push_back(text.begin_of(step, sample));
      if (!hides) continue;
      text.sample(step, sample, tokens, targets);
      hide_tokens(*plan.job, step, sample, text.largest_token().value() + 1, tokens, targets,
                  text.mask_token());
      Json of_sample = Json::array();
      for (std::size_t i = 0; i < seq_len; ++i)
        if (targets[i] != kNoTarget) of_sample.push_back({i, tokens[i]});
      hidden.push_back(std::move(of_sample));
    }
    Json line{{"step", step + 1}, {"samples_begin", std::move(begins)}};
    if (hides) line["hidden"] = std::move(hidden);
    fmt::print("{}\n", line.dump());
  }
}

// Of pictures, which, and the part of each.
void print_batches(const Plan& plan, const ImageData& images, std::int64_t steps) {
  for (std::int64_t step = 0; step < steps; ++step) {
    Json pictures = Json::array();
    for (std::int64_t sample = 0; sample < plan.job->training.global_batch; ++sample) {
      const ImageData::Taken taken = images.taken(step, sample).value();
      const PictureRegion& part = taken.region;
      Json picture{{"file", taken.file},       {"label", taken.label},  {"top", part.top},
                   {"left", part.left},        {"height", part.height}, {"width", part.width},
                   {"mirrored", part.mirrored}};
      if (taken.record >= 0) picture["record"] = taken.record;
      pictures.push_back(std::move(picture));
    }
    fmt::print("{}\n", Json{{"step", step + 1}, {"pictures", std::move(pictures)}}.dump());
  }
}

// `--save` names a folder by a slash at its end, or one that is there.
bool is_folder(const std::string& path) {
  std::error_code code;
  return path.ends_with('/') || std::filesystem::is_directory(path, code);
}

// Before anything is trained for it. The folder itself is made.
void check_place_to_save(const std::string& path) {
  std::error_code code;
  if (is_folder(path)) std::filesystem::create_directories(path, code);
  const bool may_be =
      is_folder(path) ? ::access(path.c_str(), W_OK) == 0 : FileInMaking(path).may_be_written();
  if (!may_be)
    throw UserError(path, 0, fmt::format("cannot be written: {}", std::strerror(errno)),
                    "a folder that is there, and may be written");
}

void save(const std::string& path, const Plan& plan, const Parameters& parameters,
          const RunningStatistics& statistics, Device& device, Communicator& control) {
  if (!is_folder(path)) return save_weights(path, plan, parameters, statistics, device, control);
  const std::filesystem::path folder(path);
  const bool adapters = !adapters_of(plan).empty();
  const char* name =
      adapters ? "adapter_model.safetensors" : "model.safetensors";  // as PEFT and transformers load
  save_weights((folder / name).string(), plan, parameters, statistics, device, control);
  if (control.rank() != 0 || adapters) return;
  const auto& transformer = plan.job->workload.transformer;
  const bool whole = transformer && transformer->fine_tuning.rank == 0;
  if (const auto config = whole ? huggingface_config(*transformer) : std::nullopt)
    write_file_atomically((folder / "config.json").string(), *config);
  else
    fmt::print(stderr, "{}{}: no config.json: that of {} is not written here\n", kNote, path,
               plan.job->workload.name);
}

// The ranks that are left.
class Company {
 public:
  explicit Company(Communicator& all) : all_(all) {}
  Communicator& control() { return left_ ? *left_ : all_; }
  const std::vector<int>& lost() const { return lost_; }

  // Of all that were ever lost, ascending. Whether there are more now. Collective over those that are left.
  bool loses(const std::vector<int>& lost) {
    if (lost.size() == lost_.size()) return false;
    lost_ = lost;
    std::vector<int> left;
    for (int rank = 0; rank < all_.size(); ++rank)
      if (!std::binary_search(lost.begin(), lost.end(), rank)) left.push_back(rank);
    left_ = all_.split(left, kKeyOfTheLeft + static_cast<int>(lost.size()));
    return true;
  }

  // On rank 0, by rank: those who are lost have noted nothing.
  std::vector<RankNotes> gathered(const RankNotes& mine) {
    std::vector<RankNotes> notes;
    for (const std::string& bytes : gather_to_root(control(), packed(mine))) notes.push_back(unpacked(bytes));
    if (notes.empty()) return notes;
    RankNotes nothing;
    nothing.loss.resize(mine.loss.size());
    nothing.begins_s.resize(mine.loss.size());
    for (const int rank : lost_) notes.insert(notes.begin() + rank, nothing);
    return notes;
  }

 private:
  static constexpr int kKeyOfTheLeft = 1000;  // beyond those of the Program's groups
  Communicator& all_;
  std::unique_ptr<Communicator> left_;
  std::vector<int> lost_;
};

// What `train` does once its interpreter is made.
void train_with(Interpreter& interpreter, const Plan& plan, const Program& program, Device& device,
                Communicator& world, Communicator& control, const TrainingOptions& options,
                const ImageData* images, RankReport mine) {
  // Of rank 0's host: an error here ends the others, too.
  if (!options.save.empty() && control.rank() == 0) check_place_to_save(options.save);
  if (control.rank() == 0)
    for (const std::string& file : {options.json, options.trace, options.timeline}) check_writable(file);
  if (options.checkpoint_every > 0) check_place_for_checkpoints(options.checkpoint_folder, control);
  if (control.rank() == 0 && images != nullptr) images->check_pictures();
  Parameters& parameters = interpreter.parameters();
  const KeptState kept{parameters, interpreter.statistics(), interpreter.left_out()};
  if (!options.init.empty()) load_weights(options.init, plan, parameters, interpreter.statistics(), device);
  agree_on_parameters(program, parameters, device, control);
  OptimizerSettings settings = options.optimizer;
  settings.clip_norm = options.clip_norm.value_or(settings.clip_norm);
  interpreter.set_optimizer(settings);
  if (options.silence_s > 0) interpreter.servers().limit_patience(options.silence_s);
  if (options.skip_not_finite) interpreter.skip_what_is_not_finite();
  DataMark data;
  if (control.rank() == 0 && !options.checkpoint_folder.empty()) data = mark_of(data_file(plan, options));
  if (restarts(options)) mine.first_step = restart(plan, kept, interpreter, device, control, options, data);

  // Processors have a core a rank: the thread needs another.
  if (!device.host_memory() || cores_of_a_rank(control.size()) >= 2) interpreter.load_ahead(options.steps);

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
  Evaluations evaluations(plan, options, control);
  RankRun run(plan, interpreter, rate, mine.first_step, options.steps, clock_offset(control));
  control.barrier();
  mine.begin_s = run.now_s();
  Progress progress(plan, options, mine.first_step, control);
  Company company(control);
  std::int64_t step = mine.first_step;
  while (step < options.steps && !evaluations.patience_is_over()) {
    // Asynchronous workers have no steps to measure between.
    const bool step_by_step = (reference || progress.wanted()) && !plan.choices.asynchronous();
    const std::int64_t until = step_by_step ? step + 1 : next_stop(options, step);
    run.train(step, until);
    if (plan.choices.asynchronous() && company.loses(interpreter.servers().lost()))
      progress.go_on_with(company.control());
    note_pace();
    step = until;
    if (progress.wanted()) progress.trained(run, step);
    if (evaluations.due(step)) progress.evaluated(step, evaluations.evaluate(interpreter, step));
    if (options.checkpoint_every == 0 || step % options.checkpoint_every != 0) continue;
    save_checkpoint(options.checkpoint_folder, {step, interpreter.updates(), interpreter.scaler()}, plan,
                    kept, data, device, company.control());
    progress.checkpointed(step);
  }
  if (step < options.steps) run.end_at(step);
  if (!options.save.empty())
    save(options.save, plan, parameters, interpreter.statistics(), device, company.control());
  for (const Instruction& instruction : program.instructions)
    if (instruction.op == Op::compute) mine.flops += instruction.flops;
  mine.skipped_steps = plan.choices.asynchronous() ? 0 : step - interpreter.updates();
  mine.allocated_bytes = static_cast<double>(device.peak_bytes());
  mine.resident_bytes = resident_peak_bytes();
  const auto digest = digest_parameters(plan, interpreter.parameters(), device, company.control());

  if (plan.choices.asynchronous()) mine.staleness = interpreter.servers().staleness();
  const std::vector<RankNotes> notes = company.gathered(run.notes(mine));
  if (world.rank() != 0) {
    if (!company.lost().empty() && options.done_without_all) options.done_without_all();
    return;
  }

  const Merged merged = merge(plan, notes);
  std::vector<Program> programs;
  for (int rank = 0; rank < world.size(); ++rank) programs.push_back(lower(plan, rank));
  RunAnswer answer =
      report(plan, merged, programs, digest,
             {options.backend, options.library, device.name(), data_description(plan, options)});
  if (answer.asynchronous) answer.asynchronous->lost_ranks = company.lost();
  if (evaluations.wanted()) answer.evaluations = evaluations.report();
  if (step < options.steps) answer.stopped_after = step;
  if (reference) answer.machine_pace = pace_of_run(step_times(merged), paces);
  if (!options.timeline.empty()) write_file_atomically(options.timeline, serialized(merged.timeline));
  if (!options.trace.empty()) write_file_atomically(options.trace, chrome_trace(programs, merged.timeline));
  if (deliver("run", run_record().json(answer), options.json)) print_summary(answer);
  if (company.lost().empty()) return;
  fmt::print(stderr, "{}{}\n", kNote, kLeftBehind);
  if (options.done_without_all) options.done_without_all();
}

void check_evaluation(const Plan& plan, const TrainingOptions& options) {
  if (options.eval_data.empty()) {
    if (options.eval_every > 0 || options.eval_batches > 0 || options.patience > 0)
      throw UserError("`eval_every`, `eval_batches` and `patience` have no text", "`eval_data` FILE");
  } else if (!plan.job->workload.transformer) {
    throw UserError("`eval_data`: " + plan.job->workload.name + " reads images, of which none are evaluated",
                    "a language model");
  } else if (plan.choices.asynchronous() || plan.choices.sync == Sync::single_process) {
    throw UserError(fmt::format("`eval_data` with `sync` {}", name_of(plan.choices.sync)),
                    "all-reduce or parameter-server");
  } else if (options.patience > 0 && options.eval_every == 0) {
    throw UserError("`patience` without evaluations on the way", "`eval_every` STEPS");
  }
  if (options.print_batches && !plan.job->workload.transformer && options.data.empty())
    throw UserError("`print_batches` of synthetic images", "`data` FILE|FOLDER");
}

// What is asked for and would change nothing is a mistake.
void check_effects(Optimizer optimizer, const TrainingOptions& options) {
  const LearningRate& rate = options.learning_rate;
  const auto given = [&](const char* key) { return options.given.contains(key); };
  if (given("decay_steps") && rate.schedule != RateSchedule::wsd)
    throw UserError("`decay_steps` without the schedule that has some", "`rate_schedule` wsd");
  if (given("least_rate") && rate.schedule == RateSchedule::constant)
    throw UserError("`least_rate` of a constant rate", "`rate_schedule` linear, cosine or wsd");
  if (rate.warmup_steps > options.steps)
    throw UserError(fmt::format("`warmup_steps` {} of {} steps", rate.warmup_steps, options.steps),
                    "no more than there are");
  if (given("momentum") && optimizer != Optimizer::momentum)
    throw UserError(fmt::format("`momentum` with {}", name_of(optimizer)), "a plan with momentum");
  const bool adam = optimizer == Optimizer::adam || optimizer == Optimizer::adamw;
  for (const char* key : {"beta1", "beta2", "epsilon"})
    if (given(key) && !adam)
      throw UserError(fmt::format("`{}` with {}", key, name_of(optimizer)), "a plan with adam or adamw");
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
  check_effects(optimizer, options);
  if (options.clip_norm && !plan.job->runtime.clip_gradients)
    throw UserError("`clip_norm` under a runtime that does not clip gradients",
                    "a plan of one whose profile says clip_gradients: true");
  if (options.skip_not_finite && plan.choices.asynchronous())
    throw UserError("`on_nan` skip with asynchronous servers, who apply what comes", "stop");
  if (options.silence_s > 0 && !plan.choices.asynchronous())
    throw UserError(
        fmt::format("`silence` with `sync` {}: all wait for each other", name_of(plan.choices.sync)),
        std::string(name_of(Sync::async_parameter_server)));
  check_evaluation(plan, options);
  check_augmentation(plan, options);
  if (options.steps < 1) throw UserError("`steps` " + std::to_string(options.steps), "at least 1");
  if (const auto refusal = why_not_executable(plan)) throw UserError(*refusal);
  check_data(plan, options);
}

void train(const Plan& plan, Device& device, Communicator& world, Communicator& control,
           const TrainingOptions& options) {
  if (options.print_batches) {
    if (control.rank() != 0) return;
    if (plan.job->workload.transformer)
      print_batches(plan, text_of(plan, options), options.steps);
    else
      print_batches(plan, images_of(plan, options), options.steps);
    return;
  }
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
    train_with(*chosen, plan, program, device, world, control, options, images ? &*images : nullptr, mine);
  } catch (const std::exception& error) {
    if (options.failed) options.failed(error);
    throw;
  }
}

}  // namespace orrery::exec
