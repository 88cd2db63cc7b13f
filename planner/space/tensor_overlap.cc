#include "planner/space/tensor_overlap.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace orrery::planner {

bool may_turn_on_tensor_overlap(const RuntimeProfile& runtime) {
  return !runtime.overlap_tensor && !runtime.tensor_overlap_setting.empty();
}

void set_tensor_overlap(bool on, RuntimeProfile* runtime) {
  runtime->overlap_tensor = on;
  runtime->overlap_tensor_backward |= on;
}

void set_tensor_overlap(bool on, bool any_runtime, Job* job) {
  RuntimeProfile& runtime = job->runtime;
  if (on && !runtime.overlap_tensor && !may_turn_on_tensor_overlap(runtime) && !any_runtime)
    throw UserError(fmt::format("`overlap_tensor` on, but {} has no such setting", runtime.name),
                    "expected off, a runtime that has it, or `any_runtime` beside it");
  set_tensor_overlap(on, &runtime);
}

bool tensor_overlap_reaches(const Job& job, const Choices& choices) {
  const auto holds = [&](const NodeGroup& group) { return group.node.devices % choices.tp == 0; };
  return choices.tp > 1 && choices.sequence_parallel &&
         std::all_of(job.cluster.groups.begin(), job.cluster.groups.end(), holds);
}

}  // namespace orrery::planner
