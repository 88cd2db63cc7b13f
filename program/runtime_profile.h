// How one framework generation runs a model: what it fuses and overlaps, what its host costs, what it holds
// in memory. proto/runtime_profile.proto says what each field means, its unit, and which scalars are fitted.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::proto {
class RuntimeProfile;
}

namespace orrery {

class FieldCheck;

// The fields. One more is a line here and a line in proto/runtime_profile.proto: struct, reading and writing
// follow from them. Columns: type, name, the value in a profile that C++ makes from nothing, and what a file
// may say; what a file leaves out is false, 0 or empty there, whatever C++ begins with.
// - any: whatever the type holds. named: not empty.
// - modules: of kSelectiveModules, by commas.
// - at_least_zero: a finite number >= 0. fraction: 0 to 1. count: 0 and up. zero_stage: 0 to 3.
// - factor: on what the device's or the fabric's model says, up to 2; 0 stands for 1. An "efficiency" above 1
//   says that this framework's kernels are faster than those that the model was fitted to.
#define ORRERY_RUNTIME_PROFILE_FIELDS(FIELD) \
  FIELD(std::string, name, {}, named) \
  FIELD(std::string, description, {}, any) \
  FIELD(std::string, source, {}, any) \
  FIELD(bool, calibrated, false, any) \
  FIELD(bool, fused_attention, true, any) \
  FIELD(bool, fused_elementwise, true, any) \
  FIELD(bool, overlap_grad_reduce, true, any) \
  FIELD(bool, overlap_param_gather, false, any) \
  FIELD(bool, overlap_pipeline, false, any) \
  FIELD(bool, overlap_tensor, false, any) \
  FIELD(bool, overlap_tensor_backward, false, any) \
  FIELD(std::string, tensor_overlap_setting, {}, any) \
  FIELD(bool, fp32_gradients, true, any) \
  FIELD(double, bucket_bytes, 0, at_least_zero) \
  FIELD(bool, sequence_parallel, true, any) \
  FIELD(int, default_zero, 1, zero_stage) \
  FIELD(bool, clip_gradients, true, any) \
  FIELD(bool, dropout, false, any) \
  FIELD(bool, fused_gradient_accumulation, false, any) \
  FIELD(bool, fused_loss, false, any) \
  FIELD(bool, embedding_gradient_in_place, false, any) \
  FIELD(bool, synchronous_passes, false, any) \
  FIELD(bool, partitioned_messages, false, any) \
  FIELD(double, kernel_launch_s, 0, at_least_zero) \
  FIELD(double, backward_launch_share, 1, factor) \
  FIELD(double, step_overhead_s, 0, at_least_zero) \
  FIELD(double, micro_batch_overhead_s, 0, at_least_zero) \
  FIELD(double, memory_bound_efficiency, 1, factor) \
  FIELD(double, matmul_efficiency, 1, factor) \
  FIELD(double, attention_efficiency, 1, factor) \
  FIELD(double, communication_efficiency, 1, factor) \
  FIELD(double, collective_overhead_s, 0, at_least_zero) \
  FIELD(double, piece_overhead_s, 0, at_least_zero) \
  FIELD(bool, gathers_by_tensor, false, any) \
  FIELD(bool, gathers_on_demand, false, any) \
  FIELD(double, live_parameters, 0, at_least_zero) \
  FIELD(bool, updates_by_broadcast, false, any) \
  FIELD(double, optimizer_bytes_per_parameter, 0, at_least_zero) \
  FIELD(double, allocator_margin, 0, fraction) \
  FIELD(bool, dummy_weight_gradients, false, any) \
  FIELD(bool, gathered_weights_only, false, any) \
  FIELD(bool, pipeline_keeps_gathered, false, any) \
  FIELD(bool, selective_keeps_products, false, any) \
  FIELD(std::string, selective_modules, {}, modules) \
  FIELD(bool, bf16_gradient_copy, false, any) \
  FIELD(bool, fused_normalization, false, any) \
  FIELD(double, update_gradient_bytes, 0, at_least_zero) \
  FIELD(double, flat_bucket_parameters, 0, at_least_zero) \
  FIELD(int, communicator_sets, 0, count) \
  FIELD(double, workspace_bytes, 0, at_least_zero) \
  FIELD(double, older_workspace_bytes, 0, at_least_zero) \
  FIELD(double, expert_workspace_bytes, 0, at_least_zero) \
  FIELD(double, older_expert_workspace_bytes, 0, at_least_zero) \
  FIELD(int, loaded_masks, 0, count) \
  FIELD(bool, score_buffer, false, any) \
  FIELD(bool, copies_attention_output, false, any) \
  FIELD(bool, deterministic_attention, false, any) \
  FIELD(double, held_logit_bytes, 0, at_least_zero) \
  FIELD(double, waiting_logit_bytes, 0, at_least_zero) \
  FIELD(int, loss_chunks, 0, count) \
  FIELD(bool, logits_in_place, false, any) \
  FIELD(bool, gathers_hold_one_tensor, false, any) \
  FIELD(bool, narrow_frozen_weights, false, any) \
  FIELD(double, kept_hidden_tensors, 0, at_least_zero) \
  FIELD(double, logit_bytes, 0, at_least_zero) \
  FIELD(double, adapter_index_s, 0, at_least_zero) \
  FIELD(double, layer_host_s, 0, at_least_zero) \
  FIELD(bool, quantised_keep_input, false, any) \
  FIELD(bool, autocast, false, any) \
  FIELD(bool, frees_gradients, false, any) \
  FIELD(bool, even_products, false, any) \
  FIELD(bool, updates_stored_weights, false, any) \
  FIELD(double, moment_bytes, 0, at_least_zero) \
  FIELD(double, host_states, 0, fraction) \
  FIELD(bool, host_parameters, false, any) \
  FIELD(bool, host_gradients, false, any) \
  FIELD(int, host_activation_layers, 0, count) \
  FIELD(int, state_shard_ranks, 0, count) \
  FIELD(bool, fused_experts, false, any) \
  FIELD(double, expert_exposed, 1, factor) \
  FIELD(double, shared_expert_traffic, 1, factor) \
  FIELD(double, expert_spread, 0, fraction) \
  FIELD(bool, portable_attention, false, any) \
  FIELD(bool, triton_attention, false, any) \
  FIELD(int, fused_softmax_multiple, 0, count) \
  FIELD(bool, recompute_keeps_projections, false, any) \
  FIELD(bool, eager_experts, false, any) \
  FIELD(bool, experts_by_node, false, any) \
  FIELD(bool, experts_in_turn, false, any) \
  FIELD(bool, overlaps_experts, false, any) \
  FIELD(int, expert_multiprocessors, 0, count) \
  FIELD(bool, hierarchical_reduce, false, any) \
  FIELD(std::string, default_for, {}, any)

// What the framework can be asked to do (proto/runtime_profile.proto); names as plans have them.
struct Abilities {
  std::vector<std::string> schedules;
  std::vector<int> zero, zero_in_pipeline;  // stages above 0
  std::vector<std::string> dimensions;
  bool shard_groups = false;
  std::vector<std::string> without;  // what others have without saying (proto/runtime_profile.proto)
  std::vector<std::string>
      recompute_modules;  // that selective recomputation can be told; none: it has its own
  bool operator==(const Abilities&) const = default;
};

struct RuntimeProfile {
#define ORRERY_MEMBER(type, name, initial, accepted) type name = initial;
  ORRERY_RUNTIME_PROFILE_FIELDS(ORRERY_MEMBER)
#undef ORRERY_MEMBER
  std::vector<std::string> fitted;     // fields, at most kMostFitted
  std::optional<Abilities> abilities;  // nothing: whatever can be planned
};

// What selective recomputation can run again (program/operator_work.h, brought_back).
constexpr std::array<std::string_view, 7> kSelectiveModules = {
    "core_attn", "layernorm", "mla_up_proj", "moe_act", "mlp_act", "mlp", "moe"};
// Some of them: a bit for each, in that order.
using ModuleSet = std::uint8_t;
constexpr ModuleSet module_bit(std::string_view name) {  // 0 where it is none
  for (std::size_t i = 0; i < kSelectiveModules.size(); ++i)
    if (kSelectiveModules[i] == name) return static_cast<ModuleSet>(1U << i);
  return 0;
}
std::vector<std::string> names_of(ModuleSet modules);
// Of names by commas or plus signs; throws UserError on an unknown one, listing the known ones.
ModuleSet modules_from_names(std::string_view names);

// More scalars would fit any table.
constexpr std::size_t kMostFitted = 8;

// Fills defaults (factors 1 where 0) and checks ranges. Throws UserError(file, line of the field, …). `text`
// is the textproto that `message` came from; where it is part of a larger one, `at` says which.
RuntimeProfile runtime_profile_from_proto(const proto::RuntimeProfile& message, std::string_view file,
                                          std::string_view text);
RuntimeProfile runtime_profile_from_proto(const proto::RuntimeProfile& message, const FieldCheck& at);
void to_proto(const RuntimeProfile& profile, proto::RuntimeProfile* message);

std::vector<std::string> catalog_runtimes();            // names, sorted
RuntimeProfile catalog_runtime(std::string_view name);  // throws UserError on an unknown name
// What is modelled where no runtime is asked for, by the catalog's `default_for`: of models with sequences on
// GPUs ("gpu"), of general graphs with layer norms on GPUs ("gpu-graphs"), of other networks on GPUs
// ("gpu-images"), of anything on processors ("cpu") and on Google's TPUs ("tpu").
enum class RuntimeUse : std::uint8_t { gpu, gpu_graphs, gpu_images, cpu, tpu };
RuntimeProfile default_runtime(RuntimeUse use);

// A profile's text: all of its fields, or, with `based_on`, those in which it differs from that profile of
// the catalog (what was fitted of it is not passed on). `file`: for errors.
RuntimeProfile runtime_from_text(std::string_view text, std::string_view file);
// A .textproto file, a profile of the catalog by its name, or "default": that of RuntimeUse::gpu. Throws
// UserError.
RuntimeProfile load_runtime(const std::string& file_or_name);

}  // namespace orrery
