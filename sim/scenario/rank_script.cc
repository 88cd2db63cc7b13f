#include "sim/scenario/rank_script.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace orrery::sim {

std::string where(const Program& program, std::size_t instruction) {
  return "rank " + std::to_string(program.rank) + ", instruction " + std::to_string(instruction) + " (" +
         label_of(program, instruction) + ")";
}

void order_tasks(const Program& program, RankScript& script) {
  const std::size_t count = program.instructions.size();
  std::array<std::uint32_t, kStreamCount> last{};
  last.fill(kNoTask);
  script.next_begin.assign(count + 1, 0);
  for (std::size_t i = 0; i < count; ++i) {
    const Instruction& instruction = program.instructions[i];
    Task& task = script.tasks[i];
    task.waits_for = static_cast<std::uint32_t>(instruction.after.size());
    for (const std::uint32_t before : instruction.after) {
      ORRERY_CHECK(before < i, where(program, i) + " waits for a later instruction");
      ++script.next_begin[before + 1];
    }
    std::uint32_t& previous = last[static_cast<std::size_t>(instruction.stream)];
    task.has_predecessor = previous != kNoTask;
    if (task.has_predecessor) script.tasks[previous].stream_next = static_cast<std::uint32_t>(i);
    previous = static_cast<std::uint32_t>(i);
  }
  for (std::size_t i = 0; i < count; ++i) script.next_begin[i + 1] += script.next_begin[i];
  script.next.resize(script.next_begin.back());
  std::vector<std::uint32_t> fill(script.next_begin.begin(), script.next_begin.end() - 1);
  for (std::size_t i = 0; i < count; ++i)
    for (const std::uint32_t before : program.instructions[i].after)
      script.next[fill[before]++] = static_cast<std::uint32_t>(i);
}

std::vector<Issue> issues_of(const Program& program, const ScenarioInput& input) {
  const std::vector<bool> waits = input.host_waits(program);
  Issue issue;
  double issued_s = 0;
  std::vector<Issue> issues;
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    issue.begin_s = issue.end_s;
    issue.end_s += input.host_s(program, program.instructions[i]);
    issue.waited_for = waits[i];
    issued_s += issue.end_s - issue.begin_s;
    issues.push_back(issue);
    if (waits[i]) issue = {issue.stretch + 1, 0, 0, false};
  }
  if (issued_s == 0) issues.clear();
  return issues;
}

std::vector<double> relative_speeds(std::vector<double> concurrency_scale, int assumed_busy) {
  if (concurrency_scale.empty()) return concurrency_scale;
  const auto assumed = static_cast<std::size_t>(std::max(1, assumed_busy));
  const double reference = concurrency_scale[std::min(assumed, concurrency_scale.size()) - 1];
  for (double& speed : concurrency_scale) speed /= reference;
  return concurrency_scale;
}

}  // namespace orrery::sim
