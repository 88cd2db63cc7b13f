#include "measurements/doubts.h"

#include <fmt/format.h>

#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "planner/closed_form/figures.h"

namespace orrery::measurements {
namespace {

// Predictions of memory are off by less than this.
constexpr double kMemoryDoubt = 1.1;
// Seconds are not milliseconds.
constexpr double kSlowest = 100;
// What is left beside a mistake: a prediction is mostly nearer than this.
constexpr double kNear = 2;

// "130% of", "231 times".
std::string share_of_peak(double share) {
  constexpr double kInTimes = 10, kMostSaid = 1e6;
  if (share < kInTimes) return fmt::format("{:.0f}% of", 100 * share);
  return share < kMostSaid ? fmt::format("{:.0f} times", share) : "more than a million times";
}

bool is_near(double times, double mistake) {
  return mistake > kNear && times > mistake / kNear && times < mistake * kNear;
}

}  // namespace

std::string usual_mistakes(const MeasuredStep& step, double times) {
  const Plan& plan = step.row.plan;
  const double devices = plan.job->cluster.devices(), micro_batches = plan.micro_batches();
  const std::string& column = step.timed_by;
  const bool rate = column == "tokens_per_s" || column == "sequences_per_s";
  std::vector<std::string> all;
  const auto ask = [&](bool fits, const std::string& what) {
    if (fits) all.push_back(what);
  };
  ask(rate && is_near(times, devices), fmt::format("one device's of {}", devices));
  ask(rate && is_near(times, micro_batches), fmt::format("a micro-batch's of {}", micro_batches));
  ask(column == "tokens_per_s_per_gpu" && is_near(1 / times, devices),
      fmt::format("of all {} devices", devices));
  ask(column == "step_time_s" && is_near(times, 1000), "milliseconds");
  ask(column == "step_time_s" && is_near(1 / times, 60), "minutes");
  ask(column == "step_time_s" && is_near(1 / times, micro_batches),
      fmt::format("a micro-batch's of {}", micro_batches));
  std::string asked;
  for (const std::string& one : all) asked += (asked.empty() ? "" : ", or ") + one;
  return asked.empty() ? "" : fmt::format(": is '{}' {}?", column, asked);
}

std::string times_predicted(double times) {
  const bool slow = times >= 1;
  const double size = slow ? times : 1 / times;
  const std::string number = size < 1e6 ? fmt::format("{:.{}f}", size, size < 100 ? 1 : 0) : "a million";
  if (slow) return fmt::format("{}{} times what is predicted", size < 1e6 ? "" : "more than ", number);
  return fmt::format("{}{} times less than predicted", size < 1e6 ? "" : "more than ", number);
}

void check_plausible(const MeasuredStep& step) {
  const evidence::ExplicitRow& row = step.row;
  const Job& job = *row.plan.job;
  double peak = 0;
  for (const NodeGroup& group : job.cluster.groups)
    peak += job.cluster.profiles[static_cast<std::size_t>(group.node.profile)].peak(job.training.precision) *
            group.node.devices * group.count;
  const double utilization = peak > 0 ? planner::model_flops(row.plan) / row.measured_s / peak : 0;
  const double times = row.measured_s / planner::estimate_step_seconds(row.plan);
  if (utilization > 1)
    throw NoAnswer(fmt::format("{}:{}: {:.4g} s a step would be {} the devices' peak{}", step.file, step.line,
                               row.measured_s, share_of_peak(utilization), usual_mistakes(step, times)));
  if (times > kSlowest)
    throw NoAnswer(fmt::format("{}:{}: {:.4g} s a step is {}{}", step.file, step.line, row.measured_s,
                               times_predicted(times), usual_mistakes(step, times)));
}

void doubt_memory(const MeasuredStep& step, Measurements* measurements) {
  const planner::Memory memory = planner::predict_memory(step.row.plan);
  if (memory.fits(kMemoryDoubt)) return;
  measurements->doubt(
      step.file, step.line, "memory",
      fmt::format("was measured, but under the runtime {} it would need {} of {}: is that what ran "
                  "(column 'framework', or `runtime`)?",
                  step.row.plan.job->runtime.name, human_bytes(memory.needed), human_bytes(memory.capacity)));
}

void doubt_model(const MeasuredStep& step, const std::string& model, Measurements* measurements) {
  std::string guessed;
  for (const evidence::Assumed& one : step.row.assumed)
    if (one.shape) guessed += (guessed.empty() ? "" : ", ") + one.what;
  if (guessed.empty()) return;
  measurements->doubt(
      step.file, step.line, "model " + model,
      fmt::format("the model '{}' is not known by that name, and its shape was guessed by its size: {} "
                  "({:.3g} parameters): say its 'model_file' (config.json), or 'n_layers', 'hidden', "
                  "'n_heads', 'n_kv_heads', 'ffn_hidden' and 'vocab'",
                  model.substr(0, 60), guessed,
                  static_cast<double>(step.row.plan.job->workload.parameters())));
}

void doubt_sequences(const MeasuredStep& step, const std::string& said, Measurements* measurements) {
  const Job& job = *step.row.plan.job;
  if (!said.empty() || !job.workload.transformer) return;
  measurements->doubt(
      step.file, step.line, "sequences",
      fmt::format("sequences of {} tokens were assumed, for the row does not say how long they "
                  "are: say 'seq_len_tokens'",
                  job.training.seq_len));
}

}  // namespace orrery::measurements
