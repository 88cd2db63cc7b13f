#include "report/memory_curve.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "planner/closed_form/figures.h"
#include "planner/evaluation/memory_over_time.h"
#include "program/placement.h"

namespace orrery {
namespace {

// By point of the step: operators' worth of activations that are kept, and whether a backward pass runs.
struct Curve {
  std::vector<double> kept = std::vector<double>(kMemoryPoints, 0);
  std::vector<bool> transient = std::vector<bool>(kMemoryPoints, false);
};

Curve curve_of(const Program& program, const sim::Simulation& simulation, int step) {
  std::vector<std::pair<double, double>> backward;
  double begin_s = 1e300, end_s = 0;
  for (const TimelineEvent& event : simulation.timeline.events) {
    if (event.rank != program.rank || event.step != step || event.instruction >= program.instructions.size())
      continue;
    const Instruction& instruction = program.instructions[event.instruction];
    begin_s = std::min(begin_s, event.start_s);
    end_s = std::max(end_s, event.end_s);
    if (planner::is_backward(instruction)) backward.push_back({event.start_s, event.end_s});
  }
  Curve curve;
  if (end_s <= begin_s) return curve;
  // The axis is the step, whichever stretch of the clock this rank's takes.
  const double length_s = std::max(end_s - begin_s, simulation.step_time_s);
  const double from_s = simulation.step_ends_s.size() == 1 ? 0 : end_s - length_s;
  const auto point = [&](double at_s) {
    return std::clamp(static_cast<int>((at_s - from_s) / length_s * kMemoryPoints), 0, kMemoryPoints - 1);
  };
  for (const auto& [start, end] : backward)
    for (int p = point(start); p <= point(end); ++p) curve.transient[static_cast<std::size_t>(p)] = true;
  double held = 0;
  int at = 0;
  for (const planner::KeptChange& change : planner::kept_changes(program, simulation.timeline, step)) {
    for (const int to = point(change.at_s); at < to;) curve.kept[static_cast<std::size_t>(++at)] = held;
    held = std::max(0.0, held + change.operators);
    double& most = curve.kept[static_cast<std::size_t>(at)];
    most = std::max(most, held);
  }
  while (at < kMemoryPoints - 1) curve.kept[static_cast<std::size_t>(++at)] = held;
  return curve;
}

Json stage_json(const Plan& plan, const Program& program, const sim::Simulation& simulation) {
  const planner::Memory memory = planner::predict_memory_of_stage(plan, program.at.pp);
  const Curve curve = curve_of(program, simulation, static_cast<int>(simulation.step_ends_s.size()) - 1);
  const double most = *std::max_element(curve.kept.begin(), curve.kept.end());
  Json kept = Json::array(), transient = Json::array();
  for (std::size_t p = 0; p < curve.kept.size(); ++p) {
    kept.push_back(most > 0 ? std::lround(1000 * curve.kept[p] / most) : 0);
    transient.push_back(curve.transient[p] ? 1000 : 0);
  }
  const double allocated =
      memory.weights + memory.gradients + memory.optimizer + memory.activations + memory.buffers;
  return {{"stage", program.at.pp},
          {"rank", program.rank},
          {"capacity_bytes", memory.capacity},
          {"total_bytes", memory.total},
          {"bytes",
           {{"weights", memory.weights},
            {"gradients", memory.gradients},
            {"optimizer", memory.optimizer},
            {"buffers", memory.buffers},
            {"kept", std::max(0.0, memory.activations - memory.transient)},
            {"transient", std::min(memory.transient, memory.activations)},
            {"margin", std::max(0.0, memory.total - allocated)}}},
          {"kept", kept},
          {"transient", transient}};
}

}  // namespace

Json memory_json(const Plan& plan, const sim::Simulation& simulation) {
  std::map<int, const Program*> of_stage;
  for (const Program& program : simulation.programs) {
    const Program*& first = of_stage[program.at.pp];
    if (first == nullptr || program.rank == simulation.critical_rank) first = &program;
  }
  Json stages = Json::array();
  for (const auto& [stage, program] : of_stage)
    if (stages.size() < kMostMemoryStages) stages.push_back(stage_json(plan, *program, simulation));
  return {{"step_s", simulation.step_time_s},
          {"fullest", planner::predict_memory(plan).stage},
          {"points", kMemoryPoints},
          {"stages", stages}};
}

}  // namespace orrery
