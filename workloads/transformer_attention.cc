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
  AttentionShape& shape = operators_[op].attention.emplace(
      AttentionShape{m_.heads, kv_heads, qk_dim, v_dim, !m_.bidirectional, m_.layer_window(window_layer)});
  shape.chunked =
      !m_.attention_pattern.empty() && m_.attention_pattern[static_cast<std::size_t>(window_layer)] == 'c';
  return op;
}

void TransformerBuilder::query_key_norms(int op, const std::string& t) {
  if (!m_.qk_norm || m_.qk_norm_absent_weights) return;
  const std::int64_t q = m_.qk_norm_whole ? m_.heads : 1, k = m_.qk_norm_whole ? m_.kv_heads : 1;
  const int split_dim = m_.qk_norm_whole ? 0 : -1;
  tensor(op, t + names_.q_norm + ".weight", {q * m_.head_dim}, split_dim);
  tensor(op, t + names_.k_norm + ".weight", {k * m_.head_dim}, split_dim);
}

int TransformerBuilder::self_attention(const std::string& p, const std::string& t, int layer,
                                       int window_layer, int input, bool rotary) {
  const std::int64_t context = static_cast<std::int64_t>(m_.heads) * m_.head_dim;
  const std::int64_t q = m_.attention_gate ? 2 * context : context;
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
  query_key_norms(qkv, t);
  const double gate = m_.attention_gate ? 3.0 * static_cast<double>(context) : 0;
  const double turned = m_.rotary_fraction * m_.head_dim;  // less than an element: ALiBi's, which turns none
  const int core =
      attention(p, layer, window_layer, {qkv}, m_.head_dim, m_.head_dim, m_.kv_heads,
                gate + rotary_elements(m_.heads + m_.kv_heads, rotary && turned >= 1 ? turned : 0,
                                       m_.qk_norm ? m_.head_dim : 0));
  operators_[core].attention->qk_norm = m_.qk_norm;
  if (m_.attention_sinks) tensor(core, t + names_.sinks, {m_.heads}, 0);
  return core;
}

std::vector<int> TransformerBuilder::indexer(const std::string& p, const std::string& s, int layer, int input,
                                             int low_rank) {
  const LatentAttention& a = *m_.mla;
  const std::int64_t queries = static_cast<std::int64_t>(a.index_heads) * a.index_head_dim;
  const std::int64_t own = a.index_head_dim + a.index_heads;
  const int q = linear(p + "index_q", layer, low_rank,
                       {s + "indexer.wq_b", queries, a.q_lora_rank, TensorSplit::replicated, 1, false});
  const int in = add(OperatorKind::linear, TensorSplit::replicated, p + "index_in", layer, {input}, own);
  operators_[in].matmuls = {{1, own, h_, 1}};
  weights(in, {s + "indexer.wk", a.index_head_dim, h_, TensorSplit::replicated, 1, false});
  weights(in, {s + "indexer.weights_proj", a.index_heads, h_, TensorSplit::replicated, 1, false});
  tensor(in, s + "indexer.k_norm.weight", {a.index_head_dim});
  tensor(in, s + "indexer.k_norm.bias", {a.index_head_dim});
  return {q, in};
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
  std::vector<int> inputs, index;
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
    if (a.index_heads > 0) index = indexer(p, s, layer, input, norm);
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
  inputs.insert(inputs.end(), index.begin(), index.end());
  const int core =
      attention(p, layer, window_layer, std::move(inputs), qk_dim, a.v_head_dim, m_.heads, rotary + copies);
  if (!index.empty()) {
    AttentionShape& shape = *operators_[core].attention;
    shape.window = a.index_top_k;  // chosen keys, no longer neighbours: as many
    shape.index_heads = a.index_heads;
    shape.index_head_dim = a.index_head_dim;
  }
  return core;
}

int TransformerBuilder::state_space(const std::string& p, const std::string& t, int layer, int input) {
  const StateSpaceShape& s = *m_.state_space;
  const bool delta = s.kind == StateSpaceKind::gated_delta, mamba = s.kind == StateSpaceKind::mamba2;
  // A step size a head; of the delta rule a decay and a share of what is replaced.
  const std::int64_t by_head = mamba ? s.heads : delta ? 2 * s.heads : 0;
  const std::int64_t width = s.inner() + s.convolved() + by_head;
  const std::string n = t + names_.state_space;
  const int in =
      linear(p + "state_in", layer, input, {n + "in_proj", width, h_, TensorSplit::column, 1, s.proj_bias});
  const int scan = add(OperatorKind::scan, TensorSplit::heads, p + "scan", layer, {in}, s.inner());
  operators_[scan].state_space = s;
  if (s.conv_kernel > 0) {
    tensor(scan, n + "conv1d.weight", {s.convolved(), 1, s.conv_kernel}, 0);
    if (s.conv_bias) tensor(scan, n + "conv1d.bias", {s.convolved()}, 0);
  }
  if (mamba || delta)
    for (const char* name : {"A_log", "dt_bias"}) tensor(scan, n + name, {s.heads}, 0);
  if (mamba) tensor(scan, n + "D", {s.heads}, 0);
  // The delta rule's norm has one head's weights for all.
  if (delta) {
    tensor(scan, n + "norm.weight", {s.head_dim});
  } else {
    tensor(scan, n + "norm.weight", {s.inner()}, 0);
  }
  return linear(p + "state_out", layer, scan,
                {n + "out_proj", h_, s.inner(), TensorSplit::row, 1, s.proj_bias});
}

int TransformerBuilder::selective_scan(const std::string& p, const std::string& t, int layer, int input) {
  const StateSpaceShape& s = *m_.state_space;
  const std::string n = t + names_.state_space;
  const std::int64_t inner = s.inner(), maps_width = s.step_rank + 2 * static_cast<std::int64_t>(s.state);
  const int in = linear(p + "state_in", layer, input,
                        {n + "in_proj", 2 * inner, h_, TensorSplit::column, 1, s.proj_bias});
  const int maps =
      linear(p + "state_maps", layer, in, {n + "x_proj", maps_width, inner, TensorSplit::row, 1, false});
  if (s.inner_norms) {
    tensor(maps, n + "dt_layernorm.weight", {s.step_rank});
    tensor(maps, n + "b_layernorm.weight", {s.state});
    tensor(maps, n + "c_layernorm.weight", {s.state});
  }
  const int steps = linear(p + "state_steps", layer, maps,
                           {n + "dt_proj", inner, s.step_rank, TensorSplit::column, 1, true});
  const int scan = add(OperatorKind::scan, TensorSplit::heads, p + "scan", layer, {in, maps, steps}, inner);
  operators_[scan].state_space = s;
  tensor(scan, n + "conv1d.weight", {inner, 1, s.conv_kernel}, 0);
  if (s.conv_bias) tensor(scan, n + "conv1d.bias", {inner}, 0);
  tensor(scan, n + "A_log", {inner, s.state}, 0);
  tensor(scan, n + "D", {inner}, 0);
  return linear(p + "state_out", layer, scan, {n + "out_proj", h_, inner, TensorSplit::row, 1, s.proj_bias});
}

}  // namespace orrery::internal
