#include "workloads/workload.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/error.h"

namespace orrery {
namespace {

constexpr std::array<std::pair<OperatorKind, std::string_view>, 20> kOperatorKinds = {{
    {OperatorKind::embedding, "embedding"},
    {OperatorKind::norm, "norm"},
    {OperatorKind::linear, "linear"},
    {OperatorKind::attention, "attention"},
    {OperatorKind::activation, "activation"},
    {OperatorKind::residual, "residual"},
    {OperatorKind::router, "router"},
    {OperatorKind::dispatch, "dispatch"},
    {OperatorKind::expert_linear, "expert_linear"},
    {OperatorKind::combine, "combine"},
    {OperatorKind::head, "head"},
    {OperatorKind::loss_max, "loss_max"},
    {OperatorKind::loss_sum, "loss_sum"},
    {OperatorKind::loss, "loss"},
    {OperatorKind::conv, "conv"},
    {OperatorKind::batch_norm, "batch_norm"},
    {OperatorKind::pool, "pool"},
    {OperatorKind::elementwise, "elementwise"},
    {OperatorKind::interaction, "interaction"},
    {OperatorKind::scan, "scan"},
}};

}  // namespace

std::string_view name_of(OperatorKind kind) {
  const auto* at = std::find_if(kOperatorKinds.begin(), kOperatorKinds.end(),
                                [kind](const auto& entry) { return entry.first == kind; });
  ORRERY_CHECK(at != kOperatorKinds.end(), "an operator kind without a name");
  return at->second;
}

std::string_view name_of(Activation activation) {
  switch (activation) {
    case Activation::gelu:
      return "gelu";
    case Activation::gelu_erf:
      return "gelu_erf";
    case Activation::silu:
      return "silu";
    case Activation::relu:
      return "relu";
  }
  return "gelu";
}

std::string_view name_of(RopeScaling scaling) {
  switch (scaling) {
    case RopeScaling::none:
      return "none";
    case RopeScaling::linear:
      return "linear";
    case RopeScaling::dynamic:
      return "dynamic";
    case RopeScaling::llama3:
      return "llama3";
    case RopeScaling::yarn:
      return "yarn";
  }
  return "none";
}

std::string_view name_of(NormKind norm) {
  return norm == NormKind::layer_norm ? "layernorm" : "rmsnorm";
}

std::int64_t ParameterTensor::elements() const {
  std::int64_t product = 1;
  for (const std::int64_t size : shape) product *= size;
  return product;
}

std::int64_t Operator::parameter_count() const {
  std::int64_t sum = 0;
  for (const auto* tensors : {&parameters, &frozen})
    for (const ParameterTensor& tensor : *tensors) sum += tensor.tied_to.empty() ? tensor.elements() : 0;
  return sum;
}

bool Workload::drops_out() const {
  if (transformer) return transformer->dropouts.any();
  return std::any_of(operators.begin(), operators.end(),
                     [](const Operator& op) { return op.image && op.image->dropout > 0; });
}

std::int64_t Workload::parameters() const {
  std::int64_t sum = 0;
  for (const Operator& op : operators) sum += op.parameter_count();
  return sum;
}

std::string_view name_of(StateSpaceKind kind) {
  switch (kind) {
    case StateSpaceKind::mamba2:
      return "mamba2";
    case StateSpaceKind::mamba1:
      return "mamba1";
    case StateSpaceKind::gated_delta:
      return "gated_delta";
    case StateSpaceKind::lightning:
      return "lightning";
  }
  return "mamba2";
}

double attended_keys(const AttentionShape& shape, int seq_len) {
  const double s = std::max(1, seq_len);
  const double window = shape.window > 0 ? std::min<double>(shape.window, s) : s;
  if (!shape.causal) return shape.window > 0 ? std::min(2 * window, s) : s;
  if (shape.chunked && shape.window > 0) {
    // Whole chunks, and what is left of the last one.
    const double chunks = std::floor(s / window), left = s - chunks * window;
    return (chunks * window * window + left * left) / (2 * s);
  }
  // Query i sees min(i, window) keys: window - window^2 / 2s on average, s / 2 without a window.
  return window - window * window / (2 * s);
}

double index_flops_per_query(const AttentionShape& shape, int seq_len) {
  return 2 * (std::max(1, seq_len) / 2.0) * shape.index_heads * shape.index_head_dim;
}

double attention_flops_per_query(const AttentionShape& shape, int seq_len) {
  return 2 * attended_keys(shape, seq_len) * shape.heads *
         (static_cast<double>(shape.qk_head_dim) + shape.v_head_dim);
}

double StateSpaceShape::forward_flops_per_token() const {
  const auto width = static_cast<double>(inner());
  const double convolution =
      2.0 * conv_kernel * static_cast<double>(kind == StateSpaceKind::mamba1 ? inner() : convolved());
  if (kind == StateSpaceKind::mamba1) return 6 * width * state + convolution;
  double flops = width * (4.0 * state + chunk) + 2.0 * groups * chunk * state + convolution;
  if (kind == StateSpaceKind::gated_delta)
    flops += static_cast<double>(heads) * chunk * (2.0 * state + head_dim) + 2.0 * width * state;
  return flops;
}

double touched_rows(const SparseGradient& gradient, double rows, double samples, double replicas) {
  if (!(rows > 1)) return rows;
  const double missed = gradient.share > 0
                            ? replicas * std::log1p(-std::min(gradient.share, 1 - 1e-12))
                            : gradient.rows_per_sample * samples * replicas * std::log1p(-1 / rows);
  return rows * -std::expm1(missed);
}

namespace {

// Going forward, a row.
double adapter_flops(const Operator& op) {
  double flops = 0;
  for (const LowRankAdapter& adapter : op.adapters)
    flops += 2.0 * adapter.rank * static_cast<double>(adapter.in + adapter.out);
  return flops;
}

}  // namespace

double Operator::forward_flops_per_row(int seq_len) const {
  double flops = 0;
  for (const MatmulShape& shape : matmuls)
    flops += 2 * shape.rows_per_row * static_cast<double>(shape.n) * static_cast<double>(shape.k);
  if (kind == OperatorKind::expert_linear) flops *= std::max(1, active_experts);
  if (attention)
    flops += attention_flops_per_query(*attention, seq_len) + index_flops_per_query(*attention, seq_len);
  if (state_space) flops += state_space->forward_flops_per_token();
  return flops + adapter_flops(*this);
}

double Operator::training_flops_per_row(int seq_len) const {
  double flops = forward_flops_per_row(seq_len);
  const double forward = flops - adapter_flops(*this);
  const bool product = !matmuls.empty();
  if (passes_gradient) flops += product && !multiplies_inputs() ? forward : 2 * forward;
  if (product && adapters.empty() && !parameters.empty()) flops += forward;
  // Gradients of B, of what A puts out and of A; of the input.
  for (const LowRankAdapter& adapter : adapters) {
    const auto in = static_cast<double>(adapter.in), out = static_cast<double>(adapter.out);
    flops += 2.0 * adapter.rank * (2 * out + in + (passes_gradient ? in : 0));
  }
  return flops;
}

double Workload::forward_flops_per_sample(int seq_len) const {
  const int length = default_seq_len > 0 ? seq_len : 0;
  double per_row = 0;
  for (const Operator& op : operators) per_row += op.forward_flops_per_row(length);
  return per_row * std::max(1, length);
}

double Workload::training_flops_per_sample(int seq_len) const {
  if (frozen_layers == 0 && (!transformer || !transformer->fine_tuning.any()))
    return 3 * forward_flops_per_sample(seq_len);
  double per_row = 0;
  for (const Operator& op : operators) per_row += op.training_flops_per_row(seq_len);
  return per_row * std::max(1, seq_len);
}

}  // namespace orrery
