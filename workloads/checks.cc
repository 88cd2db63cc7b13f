#include "workloads/checks.h"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::internal {
namespace {

// In doubles, before anything is multiplied in integers.
double parameters_at_most(const Transformer& t) {
  const double h = t.hidden;
  const double q = static_cast<double>(t.heads) * t.head_dim;
  double layer = h * (2 * q + 2.0 * t.kv_heads * t.head_dim) + 3 * h * t.ffn_hidden;
  if (t.mla) {
    const LatentAttention& a = *t.mla;
    const double heads = t.heads;
    layer += heads * (a.qk_nope_head_dim + static_cast<double>(a.qk_rope_head_dim)) *
             std::max<double>(a.q_lora_rank, h);
    layer += heads * (a.qk_nope_head_dim + static_cast<double>(a.v_head_dim)) * a.kv_lora_rank;
    layer += heads * a.v_head_dim * h + h * (static_cast<double>(a.q_lora_rank) + a.kv_lora_rank);
  }
  if (t.moe)
    layer += 3 * h *
             (static_cast<double>(t.moe->experts) * t.moe->expert_ffn_hidden + t.moe->shared_ffn_hidden +
              t.moe->experts);
  const double layers = static_cast<double>(t.layers) + t.multi_token_layers;
  return layer * layers + h * (2.0 * t.vocab + t.max_positions);
}

}  // namespace

void check_transformer(const Transformer& t, const Fail& fail) {
  bool dense = false;
  for (int layer = 0; layer < t.layers; ++layer) dense = dense || !t.layer_has_experts(layer);
  if (dense && t.ffn_hidden == 0) fail("ffn_hidden", "0", "expected the width of the MLP");
  if (t.single_norm && !t.parallel_residual)
    fail("single_norm", "true without parallel_residual", "expected parallel_residual: true");
  if (t.post_norm && t.parallel_residual)
    fail("post_norm", "true with parallel_residual", "expected at most one of the two");
  if (t.mla && t.qk_norm) fail("qk_norm", "true with mla", "expected at most one of the two");
  if (t.multi_token_layers > 0 && (t.bidirectional || t.post_norm))
    fail("multi_token_layers", "of a bidirectional or post-norm model", "expected 0");
  const double parameters = parameters_at_most(t);
  if (!(parameters <= kMaxParameters))
    fail("layers", fmt::format("{} makes {:.3g} parameters", t.layers, parameters),
         fmt::format("expected at most {:.0g}", kMaxParameters));
}

}  // namespace orrery::internal
