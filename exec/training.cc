#include "exec/training.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/json.h"
#include "base/statistics.h"
#include "exec/checkpoint.h"
#include "exec/clock.h"
#include "exec/digest.h"
#include "exec/gather.h"
#include "exec/image_data.h"
#include "exec/initial_parameters.h"
#include "exec/interpreter.h"
#include "exec/objective.h"
#include "exec/probe.h"
#include "exec/process_memory.h"
#include "exec/report.h"
#include "exec/whole_tensors.h"
#include "program/executable.h"
#include "program/lowering.h"
#include "program/timeline.h"
#include "proto/timeline.pb.h"
#include "workloads/image_operator.h"

namespace orrery::exec {
namespace {

// What each rank tells rank 0 at the end.
struct RankReport {
  double begin_s = 0;  // all times on rank 0's clock
  std::int64_t first_step = 0;
  double flops = 0;            // of one step's computations
  double allocated_bytes = 0;  // on the device, at most
  double context_bytes = 0;    // the process before it allocated anything: code, MPI, libraries
  double resident_bytes = 0;   // at most
  std::int64_t batches = 0;    // asynchronous: of one replica, that it trained
  Staleness staleness;
};

struct Merged {
  std::vector<RankReport> ranks;
  std::vector<double> loss;           // by step
  std::vector<double> step_ends_s;    // by step, of the last rank
  std::vector<double> step_begins_s;  // where something (a checkpoint) came before it; else 0
  double begin_s = 0;                 // of the first step
  proto::Timeline timeline;           // by rank, step, instruction
};

template <typename T>
void append(std::string& bytes, const T* data, std::size_t count) {
  bytes.append(reinterpret_cast<const char*>(data), count * sizeof(T));
}

template <typename T>
void take(std::string_view& bytes, T* data, std::size_t count) {
  std::memcpy(data, bytes.data(), count * sizeof(T));
  bytes.remove_prefix(count * sizeof(T));
}

// Of the steps that count for timing: all but the first, which touches fresh memory, where there are several.
std::size_t first_timed_step(std::size_t steps) {
  return steps > 1 ? 1 : 0;
}

std::vector<double> step_times(const Merged& merged) {
  std::vector<double> times;
  for (std::size_t s = first_timed_step(merged.step_ends_s.size()); s < merged.step_ends_s.size(); ++s)
    times.push_back(merged.step_ends_s[s] -
                    std::max(merged.step_begins_s[s], s == 0 ? merged.begin_s : merged.step_ends_s[s - 1]));
  return times;
}

// Asynchronous workers end a step with the last of as many batches as it has, whosever they are.
std::vector<double> ends_of_steps(std::vector<double> batch_ends_s, int batches) {
  std::sort(batch_ends_s.begin(), batch_ends_s.end());
  std::vector<double> ends;
  const auto each = static_cast<std::size_t>(batches);
  for (std::size_t last = each; last <= batch_ends_s.size(); last += each)
    ends.push_back(batch_ends_s[last - 1]);
  return ends;
}

// Mean busy seconds of one step, by kind, of each rank.
std::vector<std::map<std::string, double>> busy_by_kind(const Merged& merged,
                                                        const std::vector<Program>& programs) {
  std::vector<std::map<std::string, double>> busy(programs.size());
  const std::size_t steps = merged.step_ends_s.size();
  const std::size_t first = first_timed_step(steps);
  for (const proto::TimelineEvent& event : merged.timeline.events()) {
    if (static_cast<std::size_t>(event.step()) < first) continue;
    const auto rank = static_cast<std::size_t>(event.rank());
    const Instruction& instruction = instruction_at(programs[rank], event.instruction());
    // An asynchronous server waits for pushes: only what it computes is work.
    if (event.instruction() >= programs[rank].instructions.size() && instruction.op != Op::compute) continue;
    busy[rank][std::string(kind_of(instruction))] +=
        (event.end_s() - event.start_s()) / static_cast<double>(steps - first);
  }
  return busy;
}

Timeline to_timeline(const proto::Timeline& message) {
  Timeline timeline;
  timeline.events.reserve(static_cast<std::size_t>(message.events_size()));
  for (const proto::TimelineEvent& e : message.events())
    timeline.events.push_back({e.rank(), e.step(), e.instruction(), e.start_s(), e.end_s()});
  return timeline;
}

TextData text_of(const Plan& plan, const TrainingOptions& options) {
  const Training& training = plan.job->training;
  return {options.data.empty() ? kDefaultText : options.data, training.seq_len, training.seed,
          training.global_batch, options.vocabulary};
}

ImageData images_of(const Plan& plan, const TrainingOptions& options) {
  const Workload& workload = plan.job->workload;
  const Training& training = plan.job->training;
  return {options.data, internal::picture_shape(workload), workload.operators.back().image->input.elements(),
          training.seed, training.global_batch};
}

std::string data_description(const Plan& plan, const TrainingOptions& options) {
  if (plan.job->workload.transformer) return options.data.empty() ? kDefaultText : options.data;
  return images_of(plan, options).description();
}

// `paces` were measured before and after each step, or before and after all of them; `times` are of the last
// steps.
Json pace_report(std::vector<double> times, const std::vector<double>& paces) {
  const bool by_step = paces.size() > times.size();
  for (std::size_t i = 0; i < times.size(); ++i) {
    const std::size_t after = by_step ? paces.size() - times.size() + i : paces.size() - 1;
    times[i] *= (paces[after - 1] + paces[after]) / 2;
  }
  const auto [least, most] = std::minmax_element(paces.begin(), paces.end());
  return {{"before", paces.front()},
          {"after", paces.back()},
          {"least", *least},
          {"most", *most},
          {"step_time_s", median(times)}};
}

Json asynchronous_report(const Merged& merged) {
  Staleness all;
  Json batches = Json::array();
  for (const RankReport& rank : merged.ranks) {
    batches.push_back(rank.batches);
    all.pushes += rank.staleness.pushes;
    all.updates += rank.staleness.updates;
    all.most_updates = std::max(all.most_updates, rank.staleness.most_updates);
    all.most_ahead = std::max(all.most_ahead, rank.staleness.most_ahead);
  }
  return {{"batches_of_ranks", batches},
          {"stale_updates",
           {{"mean", all.updates / static_cast<double>(std::max<std::int64_t>(1, all.pushes))},
            {"max", all.most_updates}}},
          {"most_steps_ahead", all.most_ahead}};
}

Json report(const Plan& plan, const Merged& merged, const std::vector<Program>& programs,
            const std::map<std::string, TensorDigest>& digest, const std::string& device,
            const TrainingOptions& options) {
  const std::vector<double> times = step_times(merged);
  const auto busy = busy_by_kind(merged, programs);
  // As the simulator's: the rank with most compute, the lowest on ties.
  std::size_t critical = 0;
  RankReport most;
  for (std::size_t r = 0; r < merged.ranks.size(); ++r) {
    if (merged.ranks[r].flops > merged.ranks[critical].flops * (1 + 1e-9)) critical = r;
    most.allocated_bytes = std::max(most.allocated_bytes, merged.ranks[r].allocated_bytes);
    most.context_bytes = std::max(most.context_bytes, merged.ranks[r].context_bytes);
    most.resident_bytes = std::max(most.resident_bytes, merged.ranks[r].resident_bytes);
  }
  const Training& training = plan.job->training;
  Json json;
  json["backend"] = options.backend;
  json["library"] = options.library;
  json["device"] = device;
  json["ranks"] = merged.ranks.size();
  json["steps"] = merged.loss.size();
  json["first_step"] = merged.ranks.front().first_step;
  json["data"] = data_description(plan, options);
  json["step_time_s"] = {{"median", median(times)},
                         {"min", *std::min_element(times.begin(), times.end())},
                         {"max", *std::max_element(times.begin(), times.end())}};
  const double samples_per_s = static_cast<double>(training.global_batch) / median(times);
  json["samples_per_s"] = samples_per_s;
  json["tokens_per_s"] = samples_per_s * training.seq_len;
  json["loss"] = merged.loss;
  json["memory_bytes"] = most.allocated_bytes + most.context_bytes;
  json["allocated_bytes"] = most.allocated_bytes;
  json["context_bytes"] = most.context_bytes;
  json["resident_bytes"] = most.resident_bytes;
  json["critical_rank"] = critical;
  json["by_kind_s"] = busy[critical];
  json["by_kind_of_ranks_s"] = busy;
  if (plan.choices.asynchronous()) json["asynchronous"] = asynchronous_report(merged);
  Json& tensors = json["parameters_digest"];
  tensors = Json::object();
  for (const auto& [name, tensor] : digest)
    tensors[name] = {{"norm", tensor.norm}, {"projections", tensor.projections}};
  return json;
}

// What this rank trains, and what it notes of that.
class RankRun {
 public:
  RankRun(const Plan& plan, Interpreter& interpreter, const TrainingOptions& options, std::int64_t first_step,
          double offset)
      : loss(static_cast<std::size_t>(options.steps - first_step)),
        begins_s(loss.size()),
        plan_(plan),
        interpreter_(interpreter),
        options_(options),
        plain_rate_(interpreter.parameters().learning_rate()),
        first_step_(first_step),
        offset_(offset) {}

  // On rank 0's clock.
  double now_s() const { return steady_seconds() + offset_; }

  // Steps [begin, end); between two calls there was something else than training.
  void train(std::int64_t begin, std::int64_t end) {
    if (begin > first_step_) begins_s[static_cast<std::size_t>(begin - first_step_)] = now_s();
    const auto rate = [this](std::int64_t step) {
      return options_.learning_rate.at(step, plain_rate_, plan_.job->training.global_batch);
    };
    if (!plan_.choices.asynchronous()) {
      for (std::int64_t step = begin; step < end; ++step) {
        interpreter_.parameters().set_learning_rate(rate(step));
        interpreter_.run_step(step);
        note(step);
      }
      return;
    }
    const std::int64_t replicas = plan_.choices.dp;
    AsynchronousServers& servers = interpreter_.servers();
    servers.begin(begin * replicas, end * replicas, rate, interpreter_.updates());
    while (const auto batch = servers.next()) {
      interpreter_.run_batch(*batch);
      note(*batch / replicas);
    }
    servers.finish();
    interpreter_.resume(servers.updates(), interpreter_.scaler());
    for (const TimelineEvent& event : servers.take_events())
      note(event.step, event.instruction, {event.start_s, event.end_s});
  }

  std::vector<double> loss;      // by step, of this rank's samples
  std::vector<double> begins_s;  // by step, where something came before it; else 0
  std::vector<double> ends_s;    // of what it trained: steps, or an asynchronous worker's batches
  proto::Timeline timeline;

 private:
  void note(std::int64_t step, std::uint32_t instruction, const Interval& interval) {
    proto::TimelineEvent* event = timeline.add_events();
    event->set_rank(rank());
    event->set_step(static_cast<std::int32_t>(step));
    event->set_instruction(instruction);
    event->set_start_s(interval.start_s + offset_);
    event->set_end_s(interval.end_s + offset_);
  }

  void note(std::int64_t step) {
    loss[static_cast<std::size_t>(step - first_step_)] +=
        interpreter_.loss_sum() / (static_cast<double>(plan_.job->training.global_batch) *
                                   static_cast<double>(predictions_per_sample(*plan_.job)));
    double end = 0;
    const std::vector<Interval>& intervals = interpreter_.intervals();
    for (std::size_t i = 0; i < intervals.size(); ++i) {
      note(static_cast<std::int64_t>(ends_s.size()), static_cast<std::uint32_t>(i), intervals[i]);
      end = std::max(end, intervals[i].end_s + offset_);
    }
    ends_s.push_back(end);
  }

  int rank() const { return interpreter_.rank(); }

  const Plan& plan_;
  Interpreter& interpreter_;
  const TrainingOptions& options_;
  double plain_rate_;
  std::int64_t first_step_;
  double offset_;
};

std::string packed(const RankReport& report, const RankRun& run) {
  std::string bytes;
  append(bytes, &report, 1);
  append(bytes, run.loss.data(), run.loss.size());
  append(bytes, run.begins_s.data(), run.begins_s.size());
  append(bytes, run.ends_s.data(), run.ends_s.size());
  return bytes + run.timeline.SerializeAsString();
}

// What the ranks have packed, in their order.
Merged merge(const Plan& plan, const std::vector<std::string>& all, std::size_t steps) {
  Merged merged;
  merged.loss.resize(steps);
  merged.step_begins_s.resize(steps);
  merged.step_ends_s.resize(steps);
  std::vector<double> batch_ends_s;
  for (std::string_view rest : all) {
    take(rest, &merged.ranks.emplace_back(), 1);
    merged.begin_s = std::max(merged.begin_s, merged.ranks.back().begin_s);
    std::vector<double> losses(steps);
    std::vector<double> begins(steps);
    std::vector<double> ends(static_cast<std::size_t>(merged.ranks.back().batches));
    take(rest, losses.data(), steps);
    take(rest, begins.data(), steps);
    take(rest, ends.data(), ends.size());
    for (std::size_t s = 0; s < steps; ++s) {
      merged.loss[s] += losses[s];
      merged.step_begins_s[s] = std::max(merged.step_begins_s[s], begins[s]);
      if (!plan.choices.asynchronous()) merged.step_ends_s[s] = std::max(merged.step_ends_s[s], ends[s]);
    }
    batch_ends_s.insert(batch_ends_s.end(), ends.begin(), ends.end());
    proto::Timeline part;
    ORRERY_CHECK(part.ParseFromArray(rest.data(), static_cast<int>(rest.size())),
                 "a rank's timeline is damaged");
    merged.timeline.MergeFrom(part);
  }
  if (plan.choices.asynchronous())
    merged.step_ends_s = ends_of_steps(std::move(batch_ends_s), plan.choices.dp);
  merged.timeline.set_clock("real");
  for (proto::TimelineEvent& event : *merged.timeline.mutable_events()) {
    event.set_start_s(event.start_s() - merged.begin_s);
    event.set_end_s(event.end_s() - merged.begin_s);
  }
  return merged;
}

// The step to go on with, by the newest checkpoint; 0 where there is none. Throws NoAnswer where it is the
// last.
std::int64_t restart(const Plan& plan, const KeptState& kept, Interpreter& interpreter, Device& device,
                     Communicator& control, const TrainingOptions& options) {
  std::int64_t first_step = 0;
  if (const auto found = newest_checkpoint(options.checkpoint_folder, control)) {
    const TrainingCounts counts = load_checkpoint(*found, plan, kept, device, control.rank());
    interpreter.resume(counts.updates, counts.scaler);
    first_step = found->steps;
  }
  if (first_step >= options.steps)
    throw NoAnswer(fmt::format("{} has {} steps of {}: there is nothing left to train",
                               options.checkpoint_folder, first_step, options.steps));
  if (control.rank() == 0)
    fmt::print(stderr, "orrery: goes on after step {} of {}\n", first_step, options.steps);
  return first_step;
}

// Throws UserError where the data do not fit the model.
void check_data(const Plan& plan, const TrainingOptions& options) {
  const Workload& workload = plan.job->workload;
  if (!workload.transformer) {
    if (!options.vocabulary.empty())
      throw UserError("--vocab: " + workload.name + " reads images", "no vocabulary");
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

void print_summary(const Json& json) {
  fmt::print("trained {} steps on {} ranks ({}, {})\n", json["steps"].get<int>(), json["ranks"].get<int>(),
             json["library"].get<std::string>(), json["device"].get<std::string>());
  const double tokens_per_s = json["tokens_per_s"].get<double>();
  const std::string rate = tokens_per_s > 0
                               ? fmt::format("{:.0f} tokens/s", tokens_per_s)
                               : fmt::format("{:.1f} samples/s", json["samples_per_s"].get<double>());
  fmt::print("  step   {} (median; {} to {}), {}\n",
             human_seconds(json["step_time_s"]["median"].get<double>()),
             human_seconds(json["step_time_s"]["min"].get<double>()),
             human_seconds(json["step_time_s"]["max"].get<double>()), rate);
  if (tokens_per_s == 0) fmt::print("  data   {}\n", json["data"].get<std::string>());
  fmt::print("  loss   {:.4f} -> {:.4f}\n", json["loss"].front().get<double>(),
             json["loss"].back().get<double>());
  fmt::print("  memory {} on the fullest rank, {} of them the process itself\n",
             human_bytes(json["memory_bytes"].get<double>()),
             human_bytes(json["context_bytes"].get<double>()));
  if (json.contains("asynchronous")) {
    const Json& asynchronous = json["asynchronous"];
    fmt::print("  stale  {:.1f} updates of others between pull and push (mean; at most {:.0f}), batches {}\n",
               asynchronous["stale_updates"]["mean"].get<double>(),
               asynchronous["stale_updates"]["max"].get<double>(), asynchronous["batches_of_ranks"].dump());
  }
  fmt::print("  busy   rank {}:", json["critical_rank"].get<int>());
  for (const auto& [kind, seconds] : json["by_kind_s"].items())
    fmt::print(" {} {}", kind, human_seconds(seconds.get<double>()));
  fmt::print("\n");
}

}  // namespace

void check_training(const Plan& plan, const Communicator& world, const TrainingOptions& options) {
  if (plan.choices.world() != world.size())
    throw UserError(
        fmt::format("the plan is for {} ranks and {} were started", plan.choices.world(), world.size()),
        fmt::format("mpirun -np {}", plan.choices.world()));
  if (options.checkpoint_folder.empty() && (options.checkpoint_every > 0 || options.restart))
    throw UserError("--checkpoint-every and --restart have no folder", "--checkpoint-dir FOLDER");
  if (options.checkpoint_every < 0) throw UserError("--checkpoint-every is negative", "a number of steps");
  if (!options.init.empty()) check_weights(options.init, plan);
  if (options.steps < 1) throw UserError("--steps " + std::to_string(options.steps), "at least 1");
  if (const auto refusal = executor_refuses(plan)) throw UserError(*refusal);
  check_data(plan, options);
}

void train(const Plan& plan, Device& device, Communicator& world, Communicator& control,
           const TrainingOptions& options) {
  check_training(plan, world, options);
  if (plan.choices.asynchronous() && !device.host_memory())
    throw UserError(fmt::format("--sync {} on GPUs is not executed yet", name_of(plan.choices.sync)),
                    "--backend mpi");
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
  Interpreter& interpreter = *chosen;

  Parameters& parameters = interpreter.parameters();
  const KeptState kept{parameters, interpreter.statistics(), interpreter.left_out()};
  if (!options.init.empty()) load_weights(options.init, plan, parameters, interpreter.statistics(), device);
  agree_on_parameters(program, parameters, device, control);
  if (options.restart) mine.first_step = restart(plan, kept, interpreter, device, control, options);

  const DeviceProfile& profile = plan.job->cluster.profile_of(0);
  std::optional<Reference> reference;
  if (options.pace && profile.reference_s > 0) reference.emplace(control);
  std::vector<double> paces;  // of the machine, between stretches of steps
  const auto note_pace = [&] {
    if (reference) paces.push_back(reference->pace(profile));
  };
  note_pace();
  RankRun run(plan, interpreter, options, mine.first_step, clock_offset(control));
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
  mine.allocated_bytes = static_cast<double>(device.peak_bytes());
  mine.resident_bytes = resident_peak_bytes();
  const auto digest = digest_parameters(plan, interpreter.parameters(), device, control);

  mine.batches = static_cast<std::int64_t>(run.ends_s.size());
  if (plan.choices.asynchronous()) mine.staleness = interpreter.servers().staleness();
  const std::vector<std::string> all = gather_to_root(control, packed(mine, run));
  if (world.rank() != 0) return;

  const Merged merged = merge(plan, all, run.loss.size());
  std::vector<Program> programs;
  for (int rank = 0; rank < world.size(); ++rank) programs.push_back(lower(plan, rank));
  Json json = report(plan, merged, programs, digest, device.name(), options);
  if (reference) json["machine_pace"] = pace_report(step_times(merged), paces);
  if (!options.timeline.empty()) write_file_atomically(options.timeline, merged.timeline.SerializeAsString());
  if (!options.trace.empty())
    write_file_atomically(options.trace, chrome_trace(programs, to_timeline(merged.timeline)));
  if (deliver(json, options.json)) print_summary(json);
}

}  // namespace orrery::exec
