// How one framework generation runs a model. Fields, units and meaning: proto/runtime_profile.proto.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace orrery::proto {
class RuntimeProfile;
}

namespace orrery {

struct RuntimeProfile {
  std::string name;
  std::string description;
  std::string source;
  bool calibrated = false;
  bool fused_attention = true;
  bool fused_elementwise = true;
  bool overlap_grad_reduce = true;
  bool overlap_param_gather = false;
  bool overlap_pipeline = false;
  bool overlap_tensor = false;
  bool fp32_gradients = true;
  double bucket_bytes = 0;
  bool sequence_parallel = true;
  int default_zero = 1;
  bool clip_gradients = true;
  bool dropout = false;
  bool fused_gradient_accumulation = false;
  bool fused_loss = false;
  bool embedding_gradient_in_place = false;
  bool synchronous_passes = false;
  double kernel_launch_s = 0;
  double backward_launch_share = 1;
  double step_overhead_s = 0;
  double micro_batch_overhead_s = 0;
  double memory_bound_efficiency = 1;
  double matmul_efficiency = 1;
  double attention_efficiency = 1;
  double communication_efficiency = 1;
  double collective_overhead_s = 0;
  double optimizer_bytes_per_parameter = 0;
  double allocator_margin = 0;
  bool dummy_weight_gradients = false;
  bool gathered_weights_only = false;
  bool pipeline_keeps_gathered = false;
  bool selective_keeps_products = false;
  bool bf16_gradient_copy = false;
  bool fused_normalization = false;
  double update_gradient_bytes = 0;
  double workspace_bytes = 0;
  bool fused_experts = false;
  double expert_exposed = 1;
  double shared_expert_traffic = 1;
  bool portable_attention = false;
  int fused_softmax_multiple = 0;
  bool recompute_keeps_projections = false;
  bool eager_experts = false;
  std::vector<std::string> frameworks;
};

// Fills defaults (efficiencies 1 where 0) and checks ranges. Throws UserError(file, line of the field, …).
RuntimeProfile runtime_profile_from_proto(const proto::RuntimeProfile& message, std::string_view file,
                                          std::string_view text);
void to_proto(const RuntimeProfile& profile, proto::RuntimeProfile* message);

std::vector<std::string> catalog_runtimes();            // sorted; "megatron-core", "orrery", …
RuntimeProfile catalog_runtime(std::string_view name);  // throws UserError on an unknown name

}  // namespace orrery
