#include "planner/evaluation/validation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_map>

#include "base/error.h"
#include "base/format.h"

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

}  // namespace

std::vector<KindComparison> join(const std::vector<Program>& programs, const Timeline& predicted,
                                 const Timeline& measured) {
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
      kind.predicted_s += a.seconds / a.count / static_cast<double>(programs.size());
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
    text += fmt::format("{} {} by {} {}", i == 0 ? ":" : ",", kind.kind, human_seconds(std::abs(difference)),
                        difference >= 0 ? "too long" : "too short");
  }
  text += ".";
  if (const auto& pace = validation.pace)
    text += fmt::format(
        "\nThis machine ran at {:.0f}% to {:.0f}% of its calibrated pace: "
        "at that pace the step's error is {:+.1f}%.",
        100 * pace->least, 100 * pace->most, 100 * validation.relative_error_at_pace());
  return text;
}

}  // namespace orrery::planner
