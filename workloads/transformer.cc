// What of a transformer follows from its dimensions.
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "workloads/tensor_names.h"
#include "workloads/transformer_builder.h"
#include "workloads/workload.h"

namespace orrery {

bool Transformer::layer_has_experts(int layer) const {
  if (!layer_pattern.empty()) return layer_pattern[static_cast<std::size_t>(layer)] == 'E';
  if (!moe || moe->experts <= 0 || layer < moe->first_dense_layers) return false;
  const int period = std::max(1, moe->layer_period);
  // qwen2_moe's decoder_sparse_step counts layers from 1; DeepSeek's moe_layer_freq and Megatron's from 0.
  const bool from_one = family.rfind("qwen", 0) == 0;
  return (layer + (from_one ? 1 : 0)) % period == 0;
}

int Transformer::layer_window(int layer) const {
  if (layer < sliding_window_from_layer) return 0;
  if (full_attention_period > 0 && (layer + 1) % full_attention_period == 0) return 0;
  return sliding_window;
}

namespace {

// Per row of a linear operator: each of its weights' adapters reads the input again, and the product of the
// two is added to the output. (Back it is half as much again, as of any element-wise operator: the output's
// gradient read twice, the input read and its gradient added to.)
double adapter_elements(const Operator& op, bool transposed) {
  double elements = 0;
  for (const ParameterTensor& weight : op.parameters) {
    if (weight.shape.size() != 2) continue;
    const std::int64_t in = weight.shape[transposed ? 0 : 1];
    const std::int64_t out = weight.shape[transposed ? 1 : 0];
    elements += static_cast<double>(in + 3 * out);
  }
  return elements;
}

// Weights have no gradients to compute, reduce or apply; the adapters' own are well below 1% of them. Norms
// are trained: next to nothing.
void freeze(const Transformer& model, std::vector<Operator>* operators) {
  const bool all = model.adapters == Adapters::all;
  for (Operator& op : *operators) {
    if (op.kind == OperatorKind::linear && (all || op.name.ends_with("qkv")))
      op.vector_elements = adapter_elements(op, internal::tensor_names(model.family).transposed);
    if (op.kind != OperatorKind::norm) op.frozen = std::exchange(op.parameters, {});
  }
}

}  // namespace

std::vector<Operator> transformer_operators(const Transformer& model) {
  ORRERY_CHECK(model.layers > 0 && model.hidden > 0 && model.heads > 0 && model.vocab > 0,
               "a transformer without layers, hidden, heads or vocabulary");
  std::vector<Operator> operators = internal::TransformerBuilder(model).build();
  if (model.adapters != Adapters::none) freeze(model, &operators);
  if (model.masked_share > 0) {
    for (Operator& op : operators) {
      if (op.layer < model.layers) continue;
      for (MatmulShape& shape : op.matmuls) shape.rows_per_row *= model.masked_share;
      op.vector_elements *= model.masked_share;
    }
  }
  return operators;
}

}  // namespace orrery
