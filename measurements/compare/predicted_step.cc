// A simulated step by kind: what runs on each rank's streams, instructions divided among kernels as the cost
// model adds them up.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>

#include "base/error.h"
#include "cost/compute_cost.h"
#include "measurements/compare/step_kinds.h"
#include "program/placement.h"

namespace orrery::measurements {
namespace {

KernelClass class_of(OperatorKind kind) {
  switch (kind) {
    case OperatorKind::linear:
    case OperatorKind::expert_linear:
    case OperatorKind::head:
    case OperatorKind::router:
    case OperatorKind::conv:
      return KernelClass::product;
    case OperatorKind::attention:
      return KernelClass::attention;
    case OperatorKind::norm:
    case OperatorKind::batch_norm:
      return KernelClass::norm;
    default:
      return KernelClass::other;
  }
}

using Shares = std::array<double, kKernelClasses>;

// Of one rank's instructions.
class Kinds {
 public:
  Kinds(const Plan& plan, const Program& program)
      : plan_(plan),
        program_(program),
        device_(plan.job->cluster.profile_of(device_of(plan, program.rank))),
        cost_(plan, device_) {}

  // Of a stretch, which ends when its last kernel does, what is not waiting for the host to launch the next.
  double running(const Instruction& instruction, double stretch_s) const {
    if (instruction.op != Op::compute) return stretch_s;
    const double device_s = cost_.seconds(program_, instruction);
    const double waits_s = std::max(0.0, cost_.host_seconds(instruction) - device_s);
    return std::max(std::min(stretch_s, device_s), stretch_s - waits_s);
  }

  // Adds a stretch of the instruction.
  void add(const Instruction& instruction, double seconds, bool of_instructions,
           std::map<std::string, KindTime>* kinds) {
    const bool communication = instruction.op == Op::collective || instruction.op == Op::exchange;
    const auto put = [&](const std::string& name, double share) {
      KindTime& kind = (*kinds)[name];
      kind.communication = communication;
      ++kind.count;
      kind.seconds += share * seconds;
    };
    if (of_instructions) return put(std::string(kind_of(instruction)), 1);
    if (instruction.op == Op::collective) {
      const std::size_t members = program_.groups[static_cast<std::size_t>(instruction.group)].ranks.size();
      return put(fmt::format("{} over {}", name_of(instruction.collective), members), 1);
    }
    if (communication) return put(std::string(kSendReceive), 1);
    if (instruction.op != Op::compute) return put(std::string(name_of(KernelClass::copy)), 1);
    if (instruction.compute == ComputeKind::optimizer)
      return put(std::string(name_of(KernelClass::optimizer)), 1);
    const Shares& shares = shares_of(instruction);
    for (std::size_t i = 0; i < shares.size(); ++i)
      if (shares[i] > 0) put(std::string(name_of(static_cast<KernelClass>(i))), shares[i]);
  }

 private:
  const Shares& shares_of(const Instruction& instruction) {
    const auto key = std::tuple(instruction.op_begin, instruction.op_end, instruction.compute);
    const auto [at, fresh] = known_.try_emplace(key);
    if (!fresh) return at->second;
    Shares& shares = at->second;
    for (int at_op = instruction.op_begin; at_op < instruction.op_end; ++at_op) {
      const Operator& op = plan_.job->workload.operators[static_cast<std::size_t>(at_op)];
      const double seconds = cost_.operator_seconds(at_op, instruction.compute);
      const double apart = apart_seconds(op, instruction.compute, seconds);
      shares[static_cast<std::size_t>(class_of(op.kind))] += seconds - apart;
      shares[static_cast<std::size_t>(KernelClass::other)] += apart;
    }
    const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
    if (sum <= 0)
      shares[static_cast<std::size_t>(KernelClass::other)] = 1;
    else
      for (double& share : shares) share /= sum;
    return shares;
  }

  // Of an operator's seconds those of kernels that have no name of its class: casts and accumulation beside a
  // product, rotary positions and a softmax beside attention's products, a norm that is made of several.
  double apart_seconds(const Operator& op, ComputeKind compute, double seconds) const {
    const RuntimeProfile& runtime = plan_.job->runtime;
    const KernelClass own = class_of(op.kind);
    if (own == KernelClass::norm) return is_rms_norm(op) && !runtime.fused_elementwise ? seconds : 0;
    if (own != KernelClass::product && own != KernelClass::attention) return 0;
    const OperatorWork work = operator_work(op, compute, cost_.shard(), runtime);
    const bool backward = !does_forward(compute);
    return std::min(seconds, vector_seconds(work.vector_bytes, op.kind, backward, device_) /
                                 runtime.memory_bound_efficiency);
  }

  const Plan& plan_;
  const Program& program_;
  const DeviceProfile& device_;
  ComputeCost cost_;
  std::map<std::tuple<std::int32_t, std::int32_t, ComputeKind>, Shares> known_;
};

// The simulated rank that stands for `rank`: itself, or one of its pipeline stage.
const Program& program_of(const sim::Simulation& simulation, const Plan& plan, int rank) {
  const int stage = coordinates_of(plan, rank).pp;
  const Program* like = &simulation.programs.front();
  for (const Program& program : simulation.programs) {
    if (program.rank == rank) return program;
    if (program.at.pp == stage && like->at.pp != stage) like = &program;
  }
  return *like;
}

// Seconds of [begin_s, end_s) in which none of the intervals runs.
double idle_of(std::vector<std::pair<double, double>> intervals, double begin_s, double end_s) {
  std::sort(intervals.begin(), intervals.end());
  double idle_s = 0, at_s = begin_s;
  for (const auto& [from_s, to_s] : intervals) {
    idle_s += std::max(0.0, std::min(from_s, end_s) - at_s);
    at_s = std::max(at_s, std::min(to_s, end_s));
  }
  return idle_s + std::max(0.0, end_s - at_s);
}

}  // namespace

StepKinds predicted_step(const planner::Evaluation& predicted, const std::vector<int>& ranks,
                         bool of_instructions) {
  const sim::Simulation& simulation = predicted.simulation.value();
  ORRERY_CHECK(!simulation.programs.empty() && !simulation.step_ends_s.empty(), "no timeline was kept");
  const std::size_t last = simulation.step_ends_s.size() - 1;
  const double begin_s = last == 0 ? 0 : simulation.step_ends_s[last - 1],
               end_s = simulation.step_ends_s[last];
  std::vector<const Program*> programs;
  for (const int rank : ranks) programs.push_back(&program_of(simulation, predicted.plan, rank));
  if (programs.empty())
    for (const Program& program : simulation.programs) programs.push_back(&program);
  const auto number = static_cast<double>(programs.size());

  StepKinds result;
  result.seconds = end_s - begin_s;
  for (const Program* program : programs) {
    Kinds kinds(predicted.plan, *program);
    std::vector<std::pair<double, double>> busy;
    const auto& events = simulation.timeline.events;
    auto event = std::partition_point(events.begin(), events.end(),
                                      [&](const TimelineEvent& one) { return one.rank < program->rank; });
    std::map<std::string, KindTime> found;
    for (; event != events.end() && event->rank == program->rank; ++event) {
      const double from_s = std::max(event->start_s, begin_s), to_s = std::min(event->end_s, end_s);
      if (to_s <= from_s) continue;
      const Instruction& instruction = instruction_at(*program, event->instruction);
      const double runs_s = kinds.running(instruction, to_s - from_s);
      busy.emplace_back(from_s, from_s + runs_s);
      kinds.add(instruction, of_instructions ? to_s - from_s : runs_s, of_instructions, &found);
    }
    result.idle_s += idle_of(std::move(busy), begin_s, end_s) / number;
    for (const auto& [name, kind] : found) result.kinds[name].add(kind, number);
  }
  return result;
}

}  // namespace orrery::measurements
