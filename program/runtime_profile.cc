#include "program/runtime_profile.h"

#include <cmath>

#include "base/embedded.h"
#include "base/error.h"
#include "proto/runtime_profile.pb.h"
#include "proto/textproto.h"

namespace orrery {

const std::vector<EmbeddedFile>& embedded_runtimes();

namespace {

class Reader {
 public:
  Reader(std::string_view file, std::string_view text) : file_(file), text_(text) {}

  double at_least_zero(const char* field, double value) const {
    if (!std::isfinite(value) || value < 0)
      fail(field, "is not a number of at least 0", "a finite number >= 0");
    return value;
  }
  // 0 stands for "not given": 1.
  double efficiency(const char* field, double value) const {
    at_least_zero(field, value);
    if (value > 2) fail(field, "is no plausible efficiency", "a fraction up to 2 of the device's model");
    return value == 0 ? 1 : value;
  }
  [[noreturn]] void fail(const char* field, const std::string& what, const std::string& expected) const {
    throw UserError(file_, line_of_field(text_, field), std::string(field) + " " + what, expected);
  }

 private:
  std::string_view file_, text_;
};

}  // namespace

RuntimeProfile runtime_profile_from_proto(const proto::RuntimeProfile& message, std::string_view file,
                                          std::string_view text) {
  const Reader read(file, text);
  RuntimeProfile p;
  p.name = message.name();
  if (p.name.empty()) read.fail("name", "is missing", "a runtime profile's name");
  p.description = message.description();
  p.source = message.source();
  p.calibrated = message.calibrated();
  p.fused_attention = message.fused_attention();
  p.fused_elementwise = message.fused_elementwise();
  p.overlap_grad_reduce = message.overlap_grad_reduce();
  p.overlap_param_gather = message.overlap_param_gather();
  p.overlap_pipeline = message.overlap_pipeline();
  p.overlap_tensor = message.overlap_tensor();
  p.fp32_gradients = message.fp32_gradients();
  p.bucket_bytes = read.at_least_zero("bucket_bytes", message.bucket_bytes());
  p.sequence_parallel = message.sequence_parallel();
  p.default_zero = message.default_zero();
  if (p.default_zero < 0 || p.default_zero > 3) read.fail("default_zero", "is no ZeRO stage", "0, 1, 2 or 3");
  p.clip_gradients = message.clip_gradients();
  p.dropout = message.dropout();
  p.fused_gradient_accumulation = message.fused_gradient_accumulation();
  p.fused_loss = message.fused_loss();
  p.embedding_gradient_in_place = message.embedding_gradient_in_place();
  p.synchronous_passes = message.synchronous_passes();
  p.kernel_launch_s = read.at_least_zero("kernel_launch_s", message.kernel_launch_s());
  p.backward_launch_share = read.efficiency("backward_launch_share", message.backward_launch_share());
  p.step_overhead_s = read.at_least_zero("step_overhead_s", message.step_overhead_s());
  p.collective_overhead_s = read.at_least_zero("collective_overhead_s", message.collective_overhead_s());
  p.micro_batch_overhead_s = read.at_least_zero("micro_batch_overhead_s", message.micro_batch_overhead_s());
  p.memory_bound_efficiency = read.efficiency("memory_bound_efficiency", message.memory_bound_efficiency());
  p.matmul_efficiency = read.efficiency("matmul_efficiency", message.matmul_efficiency());
  p.attention_efficiency = read.efficiency("attention_efficiency", message.attention_efficiency());
  p.communication_efficiency =
      read.efficiency("communication_efficiency", message.communication_efficiency());
  p.optimizer_bytes_per_parameter =
      read.at_least_zero("optimizer_bytes_per_parameter", message.optimizer_bytes_per_parameter());
  p.allocator_margin = read.at_least_zero("allocator_margin", message.allocator_margin());
  if (p.allocator_margin > 1) read.fail("allocator_margin", "is above 1", "a fraction of allocated memory");
  p.dummy_weight_gradients = message.dummy_weight_gradients();
  p.gathered_weights_only = message.gathered_weights_only();
  p.pipeline_keeps_gathered = message.pipeline_keeps_gathered();
  p.selective_keeps_products = message.selective_keeps_products();
  p.bf16_gradient_copy = message.bf16_gradient_copy();
  p.fused_normalization = message.fused_normalization();
  p.update_gradient_bytes = read.at_least_zero("update_gradient_bytes", message.update_gradient_bytes());
  p.workspace_bytes = read.at_least_zero("workspace_bytes", message.workspace_bytes());
  p.fused_experts = message.fused_experts();
  p.expert_exposed = read.efficiency("expert_exposed", message.expert_exposed());
  p.shared_expert_traffic = read.efficiency("shared_expert_traffic", message.shared_expert_traffic());
  p.portable_attention = message.portable_attention();
  p.fused_softmax_multiple = message.fused_softmax_multiple();
  if (p.fused_softmax_multiple < 0)
    read.fail("fused_softmax_multiple", "is negative", "a number of at least 0");
  p.recompute_keeps_projections = message.recompute_keeps_projections();
  p.eager_experts = message.eager_experts();
  p.frameworks.assign(message.frameworks().begin(), message.frameworks().end());
  return p;
}

void to_proto(const RuntimeProfile& p, proto::RuntimeProfile* message) {
  message->Clear();
  message->set_name(p.name);
  message->set_description(p.description);
  message->set_source(p.source);
  message->set_calibrated(p.calibrated);
  message->set_fused_attention(p.fused_attention);
  message->set_fused_elementwise(p.fused_elementwise);
  message->set_overlap_grad_reduce(p.overlap_grad_reduce);
  message->set_overlap_param_gather(p.overlap_param_gather);
  message->set_overlap_pipeline(p.overlap_pipeline);
  message->set_overlap_tensor(p.overlap_tensor);
  message->set_fp32_gradients(p.fp32_gradients);
  message->set_bucket_bytes(p.bucket_bytes);
  message->set_sequence_parallel(p.sequence_parallel);
  message->set_default_zero(p.default_zero);
  message->set_clip_gradients(p.clip_gradients);
  message->set_dropout(p.dropout);
  message->set_fused_gradient_accumulation(p.fused_gradient_accumulation);
  message->set_fused_loss(p.fused_loss);
  message->set_embedding_gradient_in_place(p.embedding_gradient_in_place);
  message->set_synchronous_passes(p.synchronous_passes);
  message->set_kernel_launch_s(p.kernel_launch_s);
  message->set_backward_launch_share(p.backward_launch_share);
  message->set_step_overhead_s(p.step_overhead_s);
  message->set_collective_overhead_s(p.collective_overhead_s);
  message->set_micro_batch_overhead_s(p.micro_batch_overhead_s);
  message->set_memory_bound_efficiency(p.memory_bound_efficiency);
  message->set_matmul_efficiency(p.matmul_efficiency);
  message->set_attention_efficiency(p.attention_efficiency);
  message->set_communication_efficiency(p.communication_efficiency);
  message->set_optimizer_bytes_per_parameter(p.optimizer_bytes_per_parameter);
  message->set_allocator_margin(p.allocator_margin);
  message->set_dummy_weight_gradients(p.dummy_weight_gradients);
  message->set_gathered_weights_only(p.gathered_weights_only);
  message->set_pipeline_keeps_gathered(p.pipeline_keeps_gathered);
  message->set_selective_keeps_products(p.selective_keeps_products);
  message->set_bf16_gradient_copy(p.bf16_gradient_copy);
  message->set_fused_normalization(p.fused_normalization);
  message->set_update_gradient_bytes(p.update_gradient_bytes);
  message->set_workspace_bytes(p.workspace_bytes);
  message->set_fused_experts(p.fused_experts);
  message->set_expert_exposed(p.expert_exposed);
  message->set_shared_expert_traffic(p.shared_expert_traffic);
  message->set_portable_attention(p.portable_attention);
  message->set_fused_softmax_multiple(p.fused_softmax_multiple);
  message->set_recompute_keeps_projections(p.recompute_keeps_projections);
  message->set_eager_experts(p.eager_experts);
  for (const std::string& name : p.frameworks) message->add_frameworks(name);
}

std::vector<std::string> catalog_runtimes() {
  std::vector<std::string> names;
  for (const EmbeddedFile& entry : embedded_runtimes()) names.emplace_back(entry.name);
  return names;
}

RuntimeProfile catalog_runtime(std::string_view name) {
  std::string known;
  for (const EmbeddedFile& entry : embedded_runtimes()) {
    if (entry.name == name) {
      proto::RuntimeProfile message;
      const std::string file = "runtimes/" + std::string(name) + ".textproto";
      parse_textproto(entry.content, file, &message);
      return runtime_profile_from_proto(message, file, entry.content);
    }
    known += (known.empty() ? "" : ", ") + std::string(entry.name);
  }
  throw UserError("unknown runtime '" + std::string(name) + "'", "one of " + known);
}

}  // namespace orrery
