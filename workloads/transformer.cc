// Operators of a transformer, from its dimensions.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "workloads/tensor_names.h"
#include "workloads/workload.h"

namespace orrery {
namespace {

using internal::tensor_names;
using internal::TensorNames;

// A weight and its bias, [out, in] unless the family transposes.
struct Linear {
  std::string name;
  std::int64_t out = 0;
  std::int64_t in = 0;
  TensorSplit split = TensorSplit::replicated;
  int parts = 1;
  bool bias = false;
};

class Builder {
 public:
  explicit Builder(const Transformer& model)
      : m_(model),
        names_(tensor_names(model.family)),
        h_(model.hidden),
        transposed_(names_.transposed),
        mlp_bias_(model.linear_bias || model.mlp_bias) {}

  std::vector<Operator> build() {
    stream_ = embedding();
    for (int layer = 0; layer < m_.layers; ++layer) block(layer, layer, "h." + std::to_string(layer) + ".");
    std::vector<int> losses;
    const int hidden_states = stream_;
    for (int module = 0; module < m_.multi_token_layers; ++module) losses.push_back(multi_token(module));
    stream_ = hidden_states;
    tail(losses);
    return std::move(operators_);
  }

 private:
  // Adds an operator and gives its index.
  int add(OperatorKind kind, TensorSplit split, std::string name, int layer, std::vector<int> inputs,
          std::int64_t output_elements, double vector_elements = 0) {
    Operator op;
    op.kind = kind;
    op.split = split;
    op.name = std::move(name);
    op.layer = layer;
    op.inputs = std::move(inputs);
    op.output_elements = output_elements;
    op.vector_elements = vector_elements;
    operators_.push_back(std::move(op));
    return static_cast<int>(operators_.size()) - 1;
  }

  void tensor(int op, std::string name, std::vector<std::int64_t> shape, int split_dim = -1, int parts = 1) {
    ParameterTensor t;
    t.name = std::move(name);
    t.shape = std::move(shape);
    t.split_dim = split_dim;
    t.split_parts = split_dim < 0 ? 1 : parts;
    operators_[op].parameters.push_back(std::move(t));
  }

  void weights(int op, const Linear& w) {
    const bool column = w.split == TensorSplit::column;
    const int out_dim = transposed_ ? 1 : 0;
    const int split_dim = column ? out_dim : w.split == TensorSplit::row ? 1 - out_dim : -1;
    tensor(op, w.name + ".weight",
           transposed_ ? std::vector<std::int64_t>{w.in, w.out} : std::vector<std::int64_t>{w.out, w.in},
           split_dim, w.parts);
    if (w.bias) tensor(op, w.name + ".bias", {w.out}, column ? 0 : -1, w.parts);
  }

  int linear(std::string name, int layer, int input, const Linear& w) {
    const int op = add(OperatorKind::linear, w.split, std::move(name), layer, {input}, w.out);
    operators_[op].matmuls = {{1, w.out, w.in, 1}};
    weights(op, w);
    return op;
  }

  void norm_weights(int op, const std::string& name, std::int64_t width) {
    tensor(op, name + ".weight", {width});
    if (m_.norm == NormKind::layer_norm) tensor(op, name + ".bias", {width});
  }

  int norm(std::string name, int layer, int input, const std::string& tensor_name) {
    const int op = add(OperatorKind::norm, TensorSplit::replicated, std::move(name), layer, {input}, h_,
                       2.0 * m_.hidden);
    norm_weights(op, tensor_name, h_);
    return op;
  }

  int residual(std::string name, int layer, std::vector<int> branches) {
    const double traffic = (static_cast<double>(branches.size()) + 2) * m_.hidden;
    branches.push_back(stream_);
    return add(OperatorKind::residual, TensorSplit::replicated, std::move(name), layer, std::move(branches),
               h_, traffic);
  }

  int embedding() {
    int op = add(OperatorKind::embedding, TensorSplit::vocabulary, "embedding", -1, {}, h_, 2.0 * m_.hidden);
    tensor(op, names_.tokens + ".weight", {m_.vocab, h_}, 0);
    if (m_.learned_positions)
      tensor(op, names_.positions + ".weight", {m_.max_positions + m_.position_offset, h_});
    if (m_.token_types > 0) tensor(op, names_.types + ".weight", {m_.token_types, h_});
    if (m_.post_norm) op = norm("embedding_norm", -1, op, names_.embedding_norm);
    return op;
  }

  // ---- Attention ----

  // Rotary positions read and write queries and keys; their norms do so again.
  double rotary_elements(std::int64_t heads, double rotary_dim, double norm_dim) const {
    return 2.0 * static_cast<double>(heads) * (rotary_dim + norm_dim);
  }

  int attention(const std::string& p, int layer, int window_layer, std::vector<int> inputs, int qk_dim,
                int v_dim, int kv_heads, double vector_elements) {
    const std::int64_t out = static_cast<std::int64_t>(m_.heads) * v_dim;
    const int op = add(OperatorKind::attention, TensorSplit::heads, p + "attention", layer, std::move(inputs),
                       out, vector_elements);
    operators_[op].attention =
        AttentionShape{m_.heads, kv_heads, qk_dim, v_dim, !m_.bidirectional, m_.layer_window(window_layer)};
    return op;
  }

  int self_attention(const std::string& p, const std::string& t, int layer, int window_layer, int input) {
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

  // Multi-head latent attention: DeepSeek-V2, arXiv 2405.04434, section 2.1.
  int latent_attention(const std::string& p, const std::string& t, int layer, int window_layer, int input) {
    const LatentAttention& a = *m_.mla;
    const std::string s = t + "self_attn.";
    const int qk_dim = a.qk_nope_head_dim + a.qk_rope_head_dim;
    const std::int64_t queries = static_cast<std::int64_t>(m_.heads) * qk_dim;
    const std::int64_t keys_values =
        static_cast<std::int64_t>(m_.heads) * (a.qk_nope_head_dim + a.v_head_dim);
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
      const int down =
          linear(p + "kv_down", layer, input,
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

  // ---- State space ----

  // Mamba-2 (arXiv 2405.21060, section 7): one product gives gate, input, maps B and C, and step sizes.
  int state_space(const std::string& p, const std::string& t, int layer, int input) {
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

  // ---- MLP and experts ----

  int mlp(const std::string& p, const std::string& t, const std::string& prefix, const std::string& gate,
          const std::string& up_name, const std::string& down_name, int layer, int input, std::int64_t width,
          const char* kind) {
    const std::int64_t up_width = m_.gated_ffn ? 2 * width : width;
    const int up = add(OperatorKind::linear, TensorSplit::column, p + kind + "_up", layer, {input}, up_width);
    operators_[up].matmuls = {{1, up_width, h_, 1}};
    if (m_.gated_ffn) weights(up, {t + prefix + gate, width, h_, TensorSplit::column, 1, mlp_bias_});
    weights(up, {t + prefix + up_name, width, h_, TensorSplit::column, 1, mlp_bias_});
    const bool shared = std::string_view(kind) == "shared";
    const int act =
        add(OperatorKind::activation, TensorSplit::column, p + (shared ? "shared_activation" : "activation"),
            layer, {up}, width, static_cast<double>(up_width + width));
    return linear(p + kind + "_down", layer, act,
                  {t + prefix + down_name, h_, width, TensorSplit::row, 1, mlp_bias_});
  }

  void expert_tensor(int op, const std::string& name, std::int64_t rows, std::int64_t columns,
                     int split_dim) {
    const std::int64_t experts = m_.moe->experts;
    tensor(op, name + ".weight", {experts, rows, columns}, split_dim);
    operators_[op].parameters.back().expert = true;
  }

  // Gives the branches of the residual: the experts, and the shared experts where there are some.
  std::vector<int> experts(const std::string& p, const std::string& t, int layer, int input) {
    const MixtureOfExperts& moe = *m_.moe;
    const std::int64_t k = moe.experts_per_token;
    const std::int64_t f = moe.expert_ffn_hidden;
    const std::int64_t width = moe.latent > 0 ? moe.latent : h_;
    const std::int64_t up_width = m_.gated_ffn ? 2 * f : f;
    const bool gate = moe.shared_gate && moe.shared_ffn_hidden > 0;
    const int router = add(OperatorKind::router, TensorSplit::replicated, p + "router", layer, {input},
                           moe.experts, 4.0 * moe.experts);
    operators_[router].matmuls = {{1, moe.experts + (gate ? 1 : 0), h_, 1}};
    tensor(router, t + names_.router + ".weight", {moe.experts, h_});
    if (moe.router_bias) tensor(router, t + names_.router_bias, {moe.experts});
    if (gate) tensor(router, t + names_.shared_gate + ".weight", {1, h_});

    const auto expert_operator = [&](OperatorKind kind, TensorSplit split, const char* name,
                                     std::vector<int> inputs, std::int64_t out, double traffic) {
      const int op = add(kind, split, p + name, layer, std::move(inputs), out, traffic);
      operators_[op].active_experts = moe.experts_per_token;
      operators_[op].experts = moe.experts;
      return op;
    };
    int routed = input;
    if (moe.latent > 0)
      routed = linear(p + "latent_down", layer, input,
                      {t + names_.latent_down, width, h_, TensorSplit::replicated, 1, false});
    const double moved = static_cast<double>(k + 1) * static_cast<double>(width);
    const int dispatch = expert_operator(OperatorKind::dispatch, TensorSplit::replicated, "dispatch",
                                         {routed, router}, k * width, moved);
    const int up = expert_operator(OperatorKind::expert_linear, TensorSplit::column, "experts_up", {dispatch},
                                   k * up_width, 0);
    operators_[up].matmuls = {{1, up_width, width, 1}};
    if (m_.gated_ffn) expert_tensor(up, t + names_.expert + names_.expert_gate, f, width, 1);
    expert_tensor(up, t + names_.expert + names_.expert_up, f, width, 1);
    const int act = expert_operator(OperatorKind::activation, TensorSplit::column, "activation", {up}, k * f,
                                    static_cast<double>(k * (up_width + f)));
    const int down =
        expert_operator(OperatorKind::expert_linear, TensorSplit::row, "experts_down", {act}, k * width, 0);
    operators_[down].matmuls = {{1, width, f, 1}};
    expert_tensor(down, t + names_.expert + names_.expert_down, width, f, 2);
    if (moe.expert_bias) {
      tensor(down, t + names_.expert + names_.expert_down + ".bias", {moe.experts, width});
      operators_[down].parameters.back().expert = true;
    }
    int out = expert_operator(OperatorKind::combine, TensorSplit::replicated, "combine", {down, router},
                              width, moved);
    if (moe.latent > 0)
      out = linear(p + "latent_up", layer, out,
                   {t + names_.latent_up, h_, width, TensorSplit::replicated, 1, false});
    std::vector<int> branches = {out};
    if (moe.shared_ffn_hidden > 0)
      branches.push_back(mlp(p, t, names_.shared, names_.expert_gate, names_.expert_up, names_.expert_down,
                             layer, input, moe.shared_ffn_hidden, "shared"));
    return branches;
  }

  std::vector<int> feed_forward(const std::string& p, const std::string& t, int layer, bool with_experts,
                                int input) {
    if (with_experts) return experts(p, t, layer, input);
    return {mlp(p, t, "", names_.gate, names_.up, names_.down, layer, input, m_.ffn_hidden, "mlp")};
  }

  // ---- Blocks ----

  // A layer that is one thing between a norm and its residual.
  void single_block(char letter, int layer, const std::string& t, const std::string& p) {
    const int input = norm(p + "norm1", layer, stream_, t + names_.norm1);
    std::vector<int> branches;
    switch (letter) {
      case 'M':
        branches = {state_space(p, t, layer, input)};
        break;
      case '*': {
        const int core = self_attention(p, t, layer, layer, input);
        branches = {linear(p + "proj", layer, core,
                           {t + names_.proj, h_, operators_[core].output_elements, TensorSplit::row, 1,
                            m_.linear_bias || m_.proj_bias})};
        break;
      }
      default:
        branches = feed_forward(p, t, layer, letter == 'E', input);
    }
    stream_ = residual(p + "residual1", layer, std::move(branches));
  }

  // One block on `stream_`. `number` is its layer in the checkpoint, `layer` where it stands in the pipeline.
  void block(int layer, int number, const std::string& p) {
    const std::string t = fmt::format(fmt::runtime(names_.layer), number);
    if (!m_.layer_pattern.empty()) {
      if (layer < m_.layers) return single_block(m_.layer_pattern[layer], layer, t, p);
      for (std::size_t i = 0; i < m_.multi_token_pattern.size(); ++i)
        single_block(m_.multi_token_pattern[i], layer, fmt::format("{}{}.", t, i),
                     fmt::format("{}{}.", p, i));
      return;
    }
    // Multi-token prediction modules are of the last layer's kind.
    const int like = std::min(number, m_.layers - 1);
    const bool with_experts = m_.layer_has_experts(like);
    const int input = m_.post_norm ? stream_ : norm(p + "norm1", layer, stream_, t + names_.norm1);
    const int core =
        m_.mla ? latent_attention(p, t, layer, like, input) : self_attention(p, t, layer, like, input);
    const std::int64_t context = operators_[core].output_elements;
    const int proj =
        linear(p + "proj", layer, core,
               {t + names_.proj, h_, context, TensorSplit::row, 1, m_.linear_bias || m_.proj_bias});
    if (m_.parallel_residual) {
      const int second = m_.single_norm ? input : norm(p + "norm2", layer, stream_, t + names_.norm2);
      std::vector<int> branches = feed_forward(p, t, layer, with_experts, second);
      branches.insert(branches.begin(), proj);
      stream_ = residual(p + "residual2", layer, std::move(branches));
      return;
    }
    stream_ = residual(p + "residual1", layer, {proj});
    if (m_.post_norm) stream_ = norm(p + "norm1", layer, stream_, t + names_.norm1);
    const int second = m_.post_norm ? stream_ : norm(p + "norm2", layer, stream_, t + names_.norm2);
    stream_ = residual(p + "residual2", layer, feed_forward(p, t, layer, with_experts, second));
    if (m_.post_norm) stream_ = norm(p + "norm2", layer, stream_, t + names_.norm2);
  }

  // Head and cross entropy on `input`; `also` are other losses that the last operator adds.
  int head_and_loss(const std::string& p, int input, const std::string& weight, bool tied,
                    const std::vector<int>& also) {
    const int layer = m_.layers;
    const double v = m_.vocab;
    const int head = add(OperatorKind::head, TensorSplit::vocabulary, p + "head", layer, {input}, m_.vocab);
    operators_[head].matmuls = {{1, m_.vocab, h_, 1}};
    tensor(head, weight + ".weight", {m_.vocab, h_}, 0);
    if (tied) operators_[head].parameters.back().tied_to = names_.tokens + ".weight";
    if (m_.mlm_head) tensor(head, "cls.predictions.bias", {m_.vocab}, 0);
    if (m_.head_bias) tensor(head, weight + ".bias", {m_.vocab}, 0);
    const int max = add(OperatorKind::loss_max, TensorSplit::vocabulary, p + "loss_max", layer, {head}, 1, v);
    const int sum =
        add(OperatorKind::loss_sum, TensorSplit::vocabulary, p + "loss_sum", layer, {head, max}, 2, v);
    std::vector<int> inputs = {head, max, sum};
    inputs.insert(inputs.end(), also.begin(), also.end());
    return add(OperatorKind::loss, TensorSplit::vocabulary, p + "loss", layer, std::move(inputs), 1, 2 * v);
  }

  void tail(std::vector<int> losses) {
    const int layer = m_.layers;
    if (m_.pooler) {
      // tanh(W x + b) of each sample's first token: one of its rows.
      const double per_row = 1.0 / std::max(1, m_.max_positions);
      int op =
          linear("pooler", layer, stream_, {"bert.pooler.dense", h_, h_, TensorSplit::replicated, 1, true});
      operators_[op].matmuls[0].rows_per_row = per_row;
      if (m_.mlm_head) {
        op = linear("next_sentence", layer, op,
                    {"cls.seq_relationship", 2, h_, TensorSplit::replicated, 1, true});
        operators_[op].matmuls[0].rows_per_row = per_row;
        losses.push_back(op);
      }
    }
    int input = stream_;
    if (m_.final_norm && !m_.post_norm) input = norm("final_norm", layer, input, names_.final_norm);
    if (m_.mlm_head) {
      input = linear("head_transform", layer, input,
                     {"cls.predictions.transform.dense", h_, h_, TensorSplit::replicated, 1, true});
      input = add(OperatorKind::activation, TensorSplit::replicated, "head_activation", layer, {input}, h_,
                  2.0 * m_.hidden);
      input = norm("head_norm", layer, input, "cls.predictions.transform.LayerNorm");
    }
    head_and_loss("", input, names_.head, m_.tied_embeddings, losses);
  }

  // One multi-token prediction module (DeepSeek-V3, arXiv 2412.19437, section 2.2): the hidden state beside
  // the next token's embedding, projected to one, through a block to the shared head.
  int multi_token(int module) {
    const int layer = m_.layers;
    const std::string p = fmt::format("mtp.{}.", module);
    const int number = m_.layers + module;
    const std::string t = fmt::format(fmt::runtime(names_.layer), number);
    const int tokens = add(OperatorKind::embedding, TensorSplit::vocabulary, p + "embedding", layer, {}, h_,
                           2.0 * m_.hidden);
    tensor(tokens, t + "embed_tokens.weight", {m_.vocab, h_}, 0);
    operators_[tokens].parameters.back().tied_to = names_.tokens + ".weight";
    // Both halves are normalised, each by itself, into one row of 2 h.
    const int norms = add(OperatorKind::norm, TensorSplit::replicated, p + "norm", layer, {stream_, tokens},
                          2 * h_, 4.0 * m_.hidden);
    norm_weights(norms, t + "enorm", h_);
    norm_weights(norms, t + "hnorm", h_);
    stream_ =
        linear(p + "eh_proj", layer, norms, {t + "eh_proj", h_, 2 * h_, TensorSplit::replicated, 1, false});
    block(layer, number, p);
    const int input = norm(p + "head_norm", layer, stream_, t + "shared_head.norm");
    const int loss = head_and_loss(p, input, t + "shared_head.head", true, {});
    // The shared head is the model's own, whose tensor is the embedding's where these are tied.
    if (!m_.tied_embeddings) {
      for (Operator& op : operators_) {
        if (op.name == p + "head") op.parameters.front().tied_to = names_.head + ".weight";
      }
    }
    return loss;
  }

  const Transformer& m_;
  const TensorNames& names_;
  const std::int64_t h_;
  const bool transposed_;
  const bool mlp_bias_;
  std::vector<Operator> operators_;
  int stream_ = -1;  // the operator whose output is the residual stream
};

}  // namespace

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
      op.vector_elements = adapter_elements(op, tensor_names(model.family).transposed);
    if (op.kind != OperatorKind::norm) op.frozen = std::exchange(op.parameters, {});
  }
}

}  // namespace

std::vector<Operator> transformer_operators(const Transformer& model) {
  ORRERY_CHECK(model.layers > 0 && model.hidden > 0 && model.heads > 0 && model.vocab > 0,
               "a transformer without layers, hidden, heads or vocabulary");
  std::vector<Operator> operators = Builder(model).build();
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
