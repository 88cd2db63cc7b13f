#include "planner/evaluation/validation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_map>

#include "base/error.h"
#include "base/format.h"
#include "program/operator_work.h"
#include "program/program.h"

namespace orrery::planner {
namespace {

constexpr std::size_t kKindsNamed = 3;

struct Step {
  double seconds = 0;
  int count = 0;
};

// Mean seconds of each instruction over the steps of a timeline, by rank.
std::unordered_map<int, std::vector<Step>> durations(const std::vector<Program>& programs,
                                                     const Timeline& timeline, bool warm_up) {
  std::unordered_map<int, std::vector<Step>> steps;
  for (const Program& program : programs) steps[program.rank].resize(instruction_count(program));
  int last = 0;
  for (const TimelineEvent& event : timeline.events) last = std::max(last, event.step);
  for (const TimelineEvent& event : timeline.events) {
    if (warm_up && last > 0 && event.step == 0) continue;
    const auto rank = steps.find(event.rank);
    if (rank == steps.end()) continue;  // not simulated: another rank stands for it
    ORRERY_CHECK(event.instruction < rank->second.size(),
                 fmt::format("rank {} has no instruction {}", event.rank, event.instruction));
    Step& step = rank->second[event.instruction];
    step.seconds += event.end_s - event.start_s;
    ++step.count;
  }
  return steps;
}

// Of an instruction's predicted seconds, what the mean rank waits for the fullest one's experts.
double waiting_share(const Plan& plan, const Instruction& instruction) {
  if (instruction.op != Op::compute || instruction.compute == ComputeKind::optimizer || plan.choices.ep <= 1)
    return 0;
  const Shard shard = shard_of(plan);
  double flops = 0, waiting = 0;
  for (std::int32_t i = instruction.op_begin; i < instruction.op_end; ++i) {
    const OperatorWork work = operator_work(plan.job->workload.operators[static_cast<std::size_t>(i)],
                                            instruction.compute, shard, plan.job->runtime);
    flops += work.flops;
    waiting += work.flops * (1 - 1 / work.fullest);
  }
  return flops > 0 ? waiting / flops : 0;
}

}  // namespace

std::optional<double> fullest_share(const Plan& plan) {
  if (plan.choices.ep <= 1) return std::nullopt;
  const Shard shard = shard_of(plan);
  for (const Operator& op : plan.job->workload.operators)
    if (op.kind == OperatorKind::expert_linear)
      return operator_work(op, ComputeKind::forward, shard, plan.job->runtime).fullest;
  return std::nullopt;
}

std::vector<KindComparison> join(const Plan& plan, const std::vector<Program>& programs,
                                 const Timeline& predicted, const Timeline& measured) {
  const auto left = durations(programs, predicted, /*warm_up=*/false);
  const auto right = durations(programs, measured, /*warm_up=*/true);
  std::map<std::string, KindComparison, std::less<>> kinds;
  for (const Program& program : programs) {
    for (std::size_t i = 0; i < instruction_count(program); ++i) {
      const Step& a = left.at(program.rank)[i];
      const Step& b = right.at(program.rank)[i];
      // An asynchronous server waits for pushes: only what it computes is work.
      if (i >= program.instructions.size() && instruction_at(program, i).op != Op::compute) continue;
      if (a.count == 0 || b.count == 0) continue;  // costs nothing and is not recorded on one of the clocks
      KindComparison& kind = kinds[std::string(kind_of(instruction_at(program, i)))];
      const double predicted_s = a.seconds / a.count / static_cast<double>(programs.size());
      const double waits_s = predicted_s * waiting_share(plan, instruction_at(program, i));
      kind.predicted_s += predicted_s - waits_s;
      if (waits_s > 0) kinds["expert_comm"].predicted_s += waits_s;
      kind.measured_s += b.seconds / b.count / static_cast<double>(programs.size());
    }
  }
  std::vector<KindComparison> result;
  for (auto& [name, kind] : kinds) {
    kind.kind = name;
    result.push_back(std::move(kind));
  }
  std::stable_sort(result.begin(), result.end(), [](const KindComparison& a, const KindComparison& b) {
    return std::abs(a.predicted_s - a.measured_s) > std::abs(b.predicted_s - b.measured_s);
  });
  return result;
}

double Validation::relative_error_at_pace() const {
  return (predicted_step_time_s - pace->step_time_s) / pace->step_time_s;
}

std::string explain(const Validation& validation) {
  std::string text =
      fmt::format("The step was predicted {:.1f}% {}", 100 * std::abs(validation.relative_error()),
                  validation.relative_error() >= 0 ? "too long" : "too short");
  for (std::size_t i = 0; i < validation.by_kind.size() && i < kKindsNamed; ++i) {
    const KindComparison& kind = validation.by_kind[i];
    const double difference = kind.predicted_s - kind.measured_s;
    text += fmt::format("{} {} by {} {}", i == 0 ? ":" : ",", spoken_part(kind.kind),
                        human_seconds(std::abs(difference)), difference >= 0 ? "too long" : "too short");
  }
  text += ".";
  if (const auto& experts = validation.experts)
    text += fmt::format(
        "\nOf the ranks that share experts the fullest had {:.2f} times the mean's tokens; {:.2f} "
        "predicted.",
        experts->measured, experts->predicted);
  if (const auto& pace = validation.pace)
    text += fmt::format(
        "\nThis machine ran at {:.0f}% to {:.0f}% of its calibrated pace: "
        "at that pace the step's error is {:+.1f}%.",
        100 * pace->least, 100 * pace->most, 100 * validation.relative_error_at_pace());
  return text;
}

}  // namespace orrery::planner
