// What of a transformer follows from its dimensions.
#include <algorithm>

#include "base/error.h"
#include "workloads/fine_tuning_internal.h"
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

std::vector<Operator> transformer_operators(const Transformer& model) {
  ORRERY_CHECK(model.layers > 0 && model.hidden > 0 && model.heads > 0 && model.vocab > 0,
               "a transformer without layers, hidden, heads or vocabulary");
  std::vector<Operator> operators = internal::TransformerBuilder(model).build();
  if (model.masked_share > 0) {
    for (Operator& op : operators) {
      if (op.layer < model.layers) continue;
      for (MatmulShape& shape : op.matmuls) shape.rows_per_row *= model.masked_share;
      op.vector_elements *= model.masked_share;
    }
  }
  if (model.fine_tuning.any()) internal::apply_fine_tuning(model, &operators);
  return operators;
}

}  // namespace orrery
