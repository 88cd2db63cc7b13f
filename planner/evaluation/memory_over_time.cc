#include "planner/evaluation/memory_over_time.h"

#include <algorithm>
#include <map>
#include <utility>

#include "planner/closed_form/figures.h"

namespace orrery::planner {
namespace {

bool frees(const Instruction& instruction) {
  return is_backward(instruction) && instruction.compute != ComputeKind::backward_input;
}

bool keeps(const Instruction& instruction) {
  return instruction.op == Op::compute && instruction.compute == ComputeKind::forward;
}

double operators_of(const Instruction& instruction) {
  return instruction.op_end - instruction.op_begin;
}

struct Held {
  double at_s = 0, operators = 0;
};

std::vector<Held> held_over_steps(const Program& program, const sim::Simulation& simulation) {
  std::vector<Held> held;
  for (std::size_t step = 0; step < simulation.step_ends_s.size(); ++step) {
    double now = 0;
    for (const KeptChange& change : kept_changes(program, simulation.timeline, static_cast<int>(step))) {
      now = std::max(0.0, now + change.operators);
      held.push_back({change.at_s, now});
    }
  }
  return held;
}

}  // namespace

bool is_backward(const Instruction& instruction) {
  if (instruction.op != Op::compute) return false;
  switch (instruction.compute) {
    case ComputeKind::backward_input:
    case ComputeKind::backward_weight:
    case ComputeKind::backward:
      return true;
    default:
      return false;
  }
}

std::vector<KeptChange> kept_changes(const Program& program, const Timeline& timeline, int step) {
  std::map<std::int32_t, std::pair<double, double>> totals;  // by micro-batch: operators forward, backward
  for (const Instruction& instruction : program.instructions) {
    if (keeps(instruction)) totals[instruction.micro_batch].first += operators_of(instruction);
    if (frees(instruction)) totals[instruction.micro_batch].second += operators_of(instruction);
  }
  std::vector<KeptChange> changes;
  const std::pair wanted(program.rank, static_cast<std::int32_t>(step));
  const auto key = [](const TimelineEvent& event) { return std::pair(event.rank, event.step); };
  auto event = std::partition_point(timeline.events.begin(), timeline.events.end(),
                                    [&](const TimelineEvent& one) { return key(one) < wanted; });
  for (; event != timeline.events.end() && key(*event) == wanted; ++event) {
    if (event->instruction >= program.instructions.size()) continue;
    const Instruction& instruction = program.instructions[event->instruction];
    const auto& [forward, freed] = totals[instruction.micro_batch];
    if (keeps(instruction)) changes.push_back({event->end_s, operators_of(instruction)});
    if (frees(instruction) && freed > 0)
      changes.push_back({event->end_s, -operators_of(instruction) * forward / freed});
  }
  std::stable_sort(changes.begin(), changes.end(),
                   [](const KeptChange& a, const KeptChange& b) { return a.at_s < b.at_s; });
  return changes;
}

std::string trace_of(const Evaluation& evaluation) {
  const sim::Simulation& simulation = evaluation.simulation.value();
  std::vector<TraceCounter> counters;
  std::map<int, Memory> of_stage;
  for (const Program& program : simulation.programs) {
    const auto [at, added] = of_stage.try_emplace(program.at.pp);
    if (added) at->second = predict_memory_of_stage(evaluation.plan, program.at.pp);
    const Memory& memory = at->second;
    const double kept = std::max(0.0, memory.activations - memory.transient);
    const std::vector<Held> held = held_over_steps(program, simulation);
    double most = 0;
    for (const Held& one : held) most = std::max(most, one.operators);
    const double stays = memory.total - memory.activations;
    TraceCounter counter{"memory (bytes)", program.rank, {}, {"stays", "activations"}, {{0, {stays, 0}}}};
    for (const Held& one : held)
      counter.samples.push_back({one.at_s, {stays, most > 0 ? kept * one.operators / most : 0}});
    counters.push_back(std::move(counter));
  }
  counters.push_back(
      {"links (bytes/s)", evaluation.plan.choices.world(), "network", simulation.link_rates.kinds, {}});
  for (const sim::LinkRates::Sample& sample : simulation.link_rates.samples)
    counters.back().samples.push_back({sample.at_s, sample.bytes_per_s});
  if (counters.back().series.empty()) counters.pop_back();
  return chrome_trace(simulation.programs, simulation.timeline, counters);
}

}  // namespace orrery::planner
