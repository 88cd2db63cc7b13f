// What of a transformer follows from its dimensions.
#include <algorithm>

#include "base/error.h"
#include "workloads/fine_tuning_internal.h"
#include "workloads/transformer_builder.h"
#include "workloads/workload.h"

namespace orrery {

bool Transformer::layer_has_experts(int layer) const {
  if (!moe || moe->experts <= 0 || layer < moe->first_dense_layers) return false;
  return layer % std::max(1, moe->layer_period) == moe->layer_offset;
}

int Transformer::layer_window(int layer) const {
  if (!attention_pattern.empty())
    return attention_pattern[static_cast<std::size_t>(layer)] == 'f' ? 0 : sliding_window;
  if (layer < sliding_window_from_layer) return 0;
  if (full_attention_period > 0 && (layer + 1) % full_attention_period == 0) return 0;
  return sliding_window;
}

std::vector<std::string> layers_of_pattern(std::string_view pattern) {
  std::vector<std::string> layers;
  if (pattern.find(' ') == std::string_view::npos) {
    for (const char letter : pattern) layers.emplace_back(1, letter);
    return layers;
  }
  for (std::size_t at = 0; at < pattern.size();) {
    const std::size_t end = std::min(pattern.find(' ', at), pattern.size());
    if (end > at) layers.emplace_back(pattern.substr(at, end - at));
    at = end + 1;
  }
  return layers;
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
