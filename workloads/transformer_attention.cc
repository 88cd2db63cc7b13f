// What mixes positions: attention, multi-head and latent, and state spaces.
#include <utility>

#include "workloads/transformer_builder.h"

namespace orrery::internal {

double TransformerBuilder::rotary_elements(std::int64_t heads, double rotary_dim, double norm_dim) const {
  return 2.0 * static_cast<double>(heads) * (rotary_dim + norm_dim);
}

int TransformerBuilder::attention(const std::string& p, int layer, int window_layer, std::vector<int> inputs,
                                  int qk_dim, int v_dim, int kv_heads, double vector_elements) {
  const std::int64_t out = static_cast<std::int64_t>(m_.heads) * v_dim;
  const int op = add(OperatorKind::attention, TensorSplit::heads, p + "attention", layer, std::move(inputs),
                     out, vector_elements);
  operators_[op].attention =
      AttentionShape{m_.heads, kv_heads, qk_dim, v_dim, !m_.bidirectional, m_.layer_window(window_layer)};
  return op;
}

int TransformerBuilder::self_attention(const std::string& p, const std::string& t, int layer,
                                       int window_layer, int input) {
  const std::int64_t q = static_cast<std::int64_t>(m_.heads) * m_.head_dim;
  const std::int64_t kv = static_cast<std::int64_t>(m_.kv_heads) * m_.head_dim;
  const int qkv = add(OperatorKind::linear, TensorSplit::column, p + "qkv", layer, {input}, q + 2 * kv);
  operators_[qkv].matmuls = {{1, q + 2 * kv, h_, 1}};
  // q|k|v side by side are equal parts only without grouped queries.
  const bool fused = !names_.qkv.empty() && (names_.qkv_parts == 1 || m_.kv_heads == m_.heads);
  if (fused) {
    weights(qkv, {t + names_.qkv, q + 2 * kv, h_, TensorSplit::column, names_.qkv_parts, m_.qkv_bias});
  } else {
    weights(qkv, {t + names_.q, q, h_, TensorSplit::column, 1, m_.qkv_bias});
    weights(qkv, {t + names_.k, kv, h_, TensorSplit::column, 1, m_.qkv_bias});
    weights(qkv, {t + names_.v, kv, h_, TensorSplit::column, 1, m_.qkv_bias});
  }
  if (m_.qk_norm) {
    tensor(qkv, t + names_.q_norm + ".weight", {m_.head_dim});
    tensor(qkv, t + names_.k_norm + ".weight", {m_.head_dim});
  }
  const bool rotary = !m_.learned_positions && m_.layer_pattern.empty();
  return attention(p, layer, window_layer, {qkv}, m_.head_dim, m_.head_dim, m_.kv_heads,
                   rotary_elements(m_.heads + m_.kv_heads, rotary ? m_.rotary_fraction * m_.head_dim : 0,
                                   m_.qk_norm ? m_.head_dim : 0));
}

int TransformerBuilder::latent_attention(const std::string& p, const std::string& t, int layer,
                                         int window_layer, int input) {
  const LatentAttention& a = *m_.mla;
  const std::string s = t + "self_attn.";
  const int qk_dim = a.qk_nope_head_dim + a.qk_rope_head_dim;
  const std::int64_t queries = static_cast<std::int64_t>(m_.heads) * qk_dim;
  const std::int64_t keys_values = static_cast<std::int64_t>(m_.heads) * (a.qk_nope_head_dim + a.v_head_dim);
  const std::int64_t kv_down = a.kv_lora_rank + a.qk_rope_head_dim;
  const auto latent_norm = [&](int down, std::int64_t width) {
    return add(OperatorKind::norm, TensorSplit::replicated, p + "latent_norm", layer, {down}, width,
               2.0 * static_cast<double>(width));
  };
  std::vector<int> inputs;
  if (a.q_lora_rank > 0) {
    const std::int64_t width = a.q_lora_rank + kv_down;
    const int down =
        add(OperatorKind::linear, TensorSplit::replicated, p + "qkv_down", layer, {input}, width);
    operators_[down].matmuls = {{1, width, h_, 1}};
    weights(down, {s + "q_a_proj", a.q_lora_rank, h_, TensorSplit::replicated, 1, m_.qkv_bias});
    weights(down, {s + "kv_a_proj_with_mqa", kv_down, h_, TensorSplit::replicated, 1, m_.qkv_bias});
    const int norm = latent_norm(down, width);
    tensor(norm, s + "q_a_layernorm.weight", {a.q_lora_rank});
    tensor(norm, s + "kv_a_layernorm.weight", {a.kv_lora_rank});
    const int up =
        add(OperatorKind::linear, TensorSplit::column, p + "qkv", layer, {norm}, queries + keys_values);
    operators_[up].matmuls = {{1, queries, a.q_lora_rank, 1}, {1, keys_values, a.kv_lora_rank, 1}};
    weights(up, {s + "q_b_proj", queries, a.q_lora_rank, TensorSplit::column, 1, false});
    weights(up, {s + "kv_b_proj", keys_values, a.kv_lora_rank, TensorSplit::column, 1, false});
    inputs = {up};
  } else {
    const int q = linear(p + "q", layer, input, {s + "q_proj", queries, h_, TensorSplit::column, 1, false});
    const int down = linear(p + "kv_down", layer, input,
                            {s + "kv_a_proj_with_mqa", kv_down, h_, TensorSplit::replicated, 1, m_.qkv_bias});
    const int norm = latent_norm(down, kv_down);
    tensor(norm, s + "kv_a_layernorm.weight", {a.kv_lora_rank});
    const int kv = linear(p + "kv", layer, norm,
                          {s + "kv_b_proj", keys_values, a.kv_lora_rank, TensorSplit::column, 1, false});
    inputs = {q, kv};
  }
  // The rotary parts of all queries and of the one key, which is then copied to every head beside its part
  // without positions.
  const double rotary = rotary_elements(m_.heads + 1, a.qk_rope_head_dim, 0);
  const double copies = static_cast<double>(m_.heads) * (a.qk_nope_head_dim + qk_dim);
  return attention(p, layer, window_layer, std::move(inputs), qk_dim, a.v_head_dim, m_.heads,
                   rotary + copies);
}

int TransformerBuilder::state_space(const std::string& p, const std::string& t, int layer, int input) {
  const StateSpaceShape& s = *m_.state_space;
  const std::int64_t width = s.inner() + s.convolved() + s.heads;
  const int in = linear(p + "state_in", layer, input,
                        {t + names_.state_space + "in_proj", width, h_, TensorSplit::column, 1, false});
  const int scan = add(OperatorKind::scan, TensorSplit::heads, p + "scan", layer, {in}, s.inner());
  operators_[scan].state_space = s;
  tensor(scan, t + names_.state_space + "conv1d.weight", {s.convolved(), 1, s.conv_kernel}, 0);
  tensor(scan, t + names_.state_space + "conv1d.bias", {s.convolved()}, 0);
  for (const char* by_head : {"A_log", "D", "dt_bias"})
    tensor(scan, t + names_.state_space + by_head, {s.heads}, 0);
  tensor(scan, t + names_.state_space + "norm.weight", {s.inner()}, 0);
  return linear(p + "state_out", layer, scan,
                {t + names_.state_space + "out_proj", h_, s.inner(), TensorSplit::row, 1, false});
}

}  // namespace orrery::internal
