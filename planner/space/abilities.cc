#include "planner/space/abilities.h"

#include <fmt/format.h>

#include <algorithm>

#include "planner/space/space.h"
#include "program/schedule.h"

namespace orrery::planner {
namespace {

template <typename List, typename Value>
bool has(const List& list, const Value& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

template <typename List, typename Value>
void add(List& list, const Value& value) {
  if (!has(list, value)) list.emplace_back(value);
}

}  // namespace

bool is_compiled_in_vain(const RuntimeProfile& runtime, Schedule schedule) {
  return splits_backward(schedule) && runtime.fused_elementwise && runtime.abilities &&
         has(runtime.abilities->without, "compiled_split_backward");
}

bool keeps_whole_states_beside_others(const Choices& c) {
  return c.zero == 0 && (c.cp > 1 || (c.dp > 1 && (c.tp > 1 || c.pp > 1 || c.ep > 1)));
}

bool splits_all_sequences(const RuntimeProfile& runtime, const Workload& workload) {
  if (!runtime.abilities) return false;
  const std::vector<std::string>& without = runtime.abilities->without;
  return has(without, "whole_sequences") ||
         (has(without, "whole_sequences_beside_experts") && experts_of(workload) > 0);
}

bool reduces_behind_pipelines(const RuntimeProfile& runtime) {
  return runtime.abilities && has(runtime.abilities->without, "reduction_beside_pipeline");
}

void let_reduce_beside_pipelines(Abilities& can) {
  std::erase(can.without, "reduction_beside_pipeline");
}

void let_keep_sequences_whole(Abilities& can) {
  std::erase(can.without, "whole_sequences");
  std::erase(can.without, "whole_sequences_beside_experts");
}

std::optional<std::string> why_cannot_run(const RuntimeProfile& runtime, const Workload& workload,
                                          const Choices& c) {
  if (c.zero == 0 && c.hybrid() && !runtime.hierarchical_reduce)
    return fmt::format("{} has no hierarchical all-reduce", runtime.name);
  if (!runtime.abilities) return {};
  const Abilities& can = *runtime.abilities;
  for (const auto& [name, degree] : {std::pair("tp", c.tp), {"pp", c.pp}, {"cp", c.cp}, {"ep", c.ep}})
    if (degree > 1 && !has(can.dimensions, name)) return fmt::format("{} has no {}", runtime.name, name);
  if (c.pp > 1 && !has(can.schedules, name_of(c.schedule)))
    return fmt::format("{} has no {} schedule", runtime.name, name_of(c.schedule));
  if (c.pp > 1 && is_compiled_in_vain(runtime, c.schedule))
    return fmt::format("{} runs no {} schedule with compiled kernels", runtime.name, name_of(c.schedule));
  if (has(can.without, "zero_0_beside_others") && keeps_whole_states_beside_others(c))
    return fmt::format("{} shards states wherever replicas are not the only form of parallelism",
                       runtime.name);
  if (c.zero > 0 && !has(c.pp > 1 ? can.zero_in_pipeline : can.zero, c.zero))
    return fmt::format("{} has no ZeRO-{}{}", runtime.name, c.zero, c.pp > 1 ? " in a pipeline" : "");
  if (c.zero > 0 && c.hybrid() && !can.shard_groups)
    return fmt::format("{} shards over all replicas, not over groups of them", runtime.name);
  if (c.zero > 0 && c.zero < 3 && c.hybrid() && has(can.without, "shard_groups_below_zero_3"))
    return fmt::format("{} shards over groups of replicas under ZeRO-3 alone", runtime.name);
  if (c.sequence_parallel && c.tp > 1 && has(can.without, "sequence_parallel"))
    return fmt::format("{} has no sequence parallelism", runtime.name);
  if (!c.sequence_parallel && c.tp > 1 && splits_all_sequences(runtime, workload))
    return fmt::format("{} splits sequences wherever there are tensor ranks{}", runtime.name,
                       has(can.without, "whole_sequences") ? "" : " beside experts");
  if (c.pp > 1 && c.dp * c.cp > 1 && c.overlap_grad_reduce && reduces_behind_pipelines(runtime))
    return fmt::format("{} reduces gradients behind a pipeline's last backward pass", runtime.name);
  if (c.recompute == Recompute::selective && has(can.without, "selective"))
    return fmt::format("{} has no selective recomputation", runtime.name);
  Choices own;
  own.recompute = Recompute::selective;
  for (const std::string& module : names_of(c.recompute_modules))
    if (!has(can.recompute_modules, module) &&
        (c.recompute_modules != modules_run_again(own, runtime) || runtime.selective_keeps_products))
      return fmt::format("{} cannot be told to run {} again", runtime.name, module);
  return {};
}

RuntimeProfile able(const RuntimeProfile& runtime, const Pins& pins) {
  RuntimeProfile result = runtime;
  if (pins.any_runtime) result.abilities.reset();
  if (pins.any_runtime || pins.shard_group) result.hierarchical_reduce = true;
  if (!result.abilities) return result;
  Abilities& can = *result.abilities;
  for (const auto& [name, pin] :
       {std::pair("tp", pins.tp), {"pp", pins.pp}, {"cp", pins.cp}, {"ep", pins.ep}})
    if (pin.value_or(1) > 1) add(can.dimensions, name);
  if (pins.schedule) {
    add(can.schedules, name_of(*pins.schedule));
    if (splits_backward(*pins.schedule)) std::erase(can.without, "compiled_split_backward");
  }
  if (pins.interleave.value_or(1) > 1) add(can.schedules, name_of(Schedule::interleaved));
  if (pins.shard_group) {
    can.shard_groups = true;
    std::erase(can.without, "shard_groups_below_zero_3");
  }
  if (pins.sequence_parallel == true) std::erase(can.without, "sequence_parallel");
  if (pins.sequence_parallel == false) let_keep_sequences_whole(can);
  if (pins.overlap_grad_reduce == true) let_reduce_beside_pipelines(can);
  if (pins.zero == 0) std::erase(can.without, "zero_0_beside_others");
  if (pins.recompute == Recompute::selective) {
    std::erase(can.without, "selective");
    for (const std::string& module : names_of(pins.recompute_modules.value_or(0)))
      add(can.recompute_modules, module);
  }
  if (const int zero = pins.zero.value_or(0); zero > 0) {
    if (pins.pp.value_or(1) > 1 || !has(can.zero, zero)) add(can.zero_in_pipeline, zero);
    if (pins.pp.value_or(1) == 1) add(can.zero, zero);
  }
  return result;
}

}  // namespace orrery::planner
