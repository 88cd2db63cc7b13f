#include "planner/evaluation/load.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/format.h"
#include "base/statistics.h"
#include "planner/closed_form/memory_model.h"

namespace orrery::planner {
namespace {

// Spreads below this share of the mean are not worth a sentence, and replicas that differ by less are alike.
constexpr double kWorthSaying = 1e-3;

double deviation(const std::vector<double>& values) {
  const double middle = mean(values);
  double squares = 0;
  for (const double value : values) squares += (value - middle) * (value - middle);
  return std::sqrt(squares / static_cast<double>(values.size()));
}

bool worth_saying(double deviation, double of) {
  return deviation > kWorthSaying * of;
}

}  // namespace

Load load_of(const Evaluation& evaluation) {
  const Plan& plan = evaluation.plan;
  const sim::Simulation& simulation = evaluation.simulation.value();
  Load load;
  MemoryModel memory(plan.job);
  std::vector<double> bytes;
  for (int stage = 0; stage < plan.stages(); ++stage) {
    int layers = 0;
    for (int chunk = 0; chunk < plan.choices.interleave; ++chunk) {
      const LayerRange range = layers_of(plan, stage, chunk);
      layers += range.end - range.begin;
    }
    const Memory of_stage = memory.predict_stage(plan.choices, stage);
    bytes.push_back(of_stage.total);
    load.stages.push_back({stage, layers, simulation.stage_compute_s[static_cast<std::size_t>(stage)],
                           of_stage.total, of_stage.capacity});
  }
  for (int replica = 0; replica < plan.choices.dp; ++replica) {
    const double compute_s = simulation.replica_compute_s[static_cast<std::size_t>(replica)];
    const std::int64_t samples = plan.micro_batches_of(replica) * plan.choices.micro_batch;
    ReplicaLoad* last = load.replicas.empty() ? nullptr : &load.replicas.back();
    if (last != nullptr && last->samples == samples &&
        std::abs(last->compute_s - compute_s) <= 1e-9 * compute_s)
      ++last->count;
    else
      load.replicas.push_back({replica, 1, samples, compute_s});
  }
  load.stage_compute_std_s = deviation(simulation.stage_compute_s);
  load.stage_memory_std_bytes = deviation(bytes);
  load.replica_compute_std_s = deviation(simulation.replica_compute_s);
  return load;
}

std::string uneven_load(const Load& load) {
  std::string text;
  const auto by_compute = [](const auto& a, const auto& b) { return a.compute_s < b.compute_s; };
  std::vector<double> compute, memory;
  for (const StageLoad& stage : load.stages) {
    compute.push_back(stage.compute_s);
    memory.push_back(stage.memory_bytes);
  }
  if (worth_saying(load.stage_compute_std_s, mean(compute))) {
    const auto [least, most] = std::minmax_element(load.stages.begin(), load.stages.end(), by_compute);
    text = fmt::format("stages compute {} (stage {}) to {} (stage {}) a step, standard deviation {:.1f}%",
                       human_seconds(least->compute_s), least->stage, human_seconds(most->compute_s),
                       most->stage, 100 * load.stage_compute_std_s / mean(compute));
  }
  if (worth_saying(load.stage_memory_std_bytes, mean(memory))) {
    const auto [least, most] = std::minmax_element(
        load.stages.begin(), load.stages.end(),
        [](const StageLoad& a, const StageLoad& b) { return a.memory_bytes < b.memory_bytes; });
    text += fmt::format("{} {} (stage {}) to {} (stage {})", text.empty() ? "stages hold" : ", and hold",
                        human_bytes(least->memory_bytes), least->stage, human_bytes(most->memory_bytes),
                        most->stage);
  }
  double replicas = 0;
  for (const ReplicaLoad& group : load.replicas) replicas += group.count;
  double middle = 0;
  for (const ReplicaLoad& group : load.replicas) middle += group.compute_s * group.count / replicas;
  if (worth_saying(load.replica_compute_std_s, middle)) {
    const auto [least, most] = std::minmax_element(load.replicas.begin(), load.replicas.end(), by_compute);
    text += fmt::format(
        "{}replicas compute {} ({} samples, replica {}) to {} ({} samples, replica {}), standard deviation "
        "{:.1f}%",
        text.empty() ? "" : "; ", human_seconds(least->compute_s), least->samples, least->first,
        human_seconds(most->compute_s), most->samples, most->first,
        100 * load.replica_compute_std_s / middle);
  }
  return text.empty() ? text : "Load: " + text + ".";
}

std::string few_workers(const Load& load) {
  double most_s = 0, all_s = 0, busy_s = 0;
  int workers = 0, busy = 0;
  for (const ReplicaLoad& group : load.replicas) most_s = std::max(most_s, group.compute_s);
  for (const ReplicaLoad& group : load.replicas) {
    workers += group.count;
    all_s += group.compute_s * group.count;
    if (group.compute_s < most_s / 2) continue;
    busy += group.count;
    busy_s += group.compute_s * group.count;
  }
  if (busy == workers) return {};
  return fmt::format(
      "{} of the {} workers do {:.0f}% of the work: the others wait for the network, and nobody for them.",
      busy, workers, 100 * busy_s / all_s);
}

}  // namespace orrery::planner
