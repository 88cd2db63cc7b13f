// A transformer's layers one after another, from its embedding to its losses.
#include "workloads/transformer_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace orrery::internal {

TransformerBuilder::TransformerBuilder(const Transformer& model)
    : m_(model),
      names_(tensor_names(model.family)),
      h_(model.hidden),
      transposed_(names_.transposed),
      mlp_bias_(model.linear_bias || model.mlp_bias),
      pattern_(layers_of_pattern(model.layer_pattern)) {}

std::vector<Operator> TransformerBuilder::build() {
  stream_ = embedding();
  for (int layer = 0; layer < m_.layers; ++layer) block(layer, layer, "h." + std::to_string(layer) + ".");
  std::vector<int> losses;
  const int hidden_states = stream_;
  for (int module = 0; module < m_.multi_token_layers; ++module) losses.push_back(multi_token(module));
  stream_ = hidden_states;
  tail(losses);
  return std::move(operators_);
}

int TransformerBuilder::add(OperatorKind kind, TensorSplit split, std::string name, int layer,
                            std::vector<int> inputs, std::int64_t output_elements, double vector_elements) {
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

void TransformerBuilder::tensor(int op, std::string name, std::vector<std::int64_t> shape, int split_dim,
                                int parts) {
  ParameterTensor t;
  t.name = std::move(name);
  t.shape = std::move(shape);
  t.split_dim = split_dim;
  t.split_parts = split_dim < 0 ? 1 : parts;
  operators_[op].parameters.push_back(std::move(t));
}

void TransformerBuilder::weights(int op, const Linear& w) {
  const bool column = w.split == TensorSplit::column;
  const int out_dim = transposed_ ? 1 : 0;
  const int split_dim = column ? out_dim : w.split == TensorSplit::row ? 1 - out_dim : -1;
  tensor(op, w.name + ".weight",
         transposed_ ? std::vector<std::int64_t>{w.in, w.out} : std::vector<std::int64_t>{w.out, w.in},
         split_dim, w.parts);
  if (w.bias) tensor(op, w.name + ".bias", {w.out}, column ? 0 : -1, w.parts);
}

int TransformerBuilder::linear(std::string name, int layer, int input, const Linear& w) {
  const int op = add(OperatorKind::linear, w.split, std::move(name), layer, {input}, w.out);
  operators_[op].matmuls = {{1, w.out, w.in, 1}};
  weights(op, w);
  return op;
}

void TransformerBuilder::norm_weights(int op, const std::string& name, std::int64_t width) {
  tensor(op, name + ".weight", {width});
  if (m_.norm == NormKind::layer_norm && !m_.unbiased_norm) tensor(op, name + ".bias", {width});
}

int TransformerBuilder::norm(std::string name, int layer, int input, const std::string& tensor_name) {
  const int op =
      add(OperatorKind::norm, TensorSplit::replicated, std::move(name), layer, {input}, h_, 2.0 * m_.hidden);
  norm_weights(op, tensor_name, h_);
  return op;
}

std::vector<int> TransformerBuilder::normed(std::string name, int layer, std::vector<int> branches,
                                            const std::string& tensor_name) {
  if (!m_.branch_norms) return branches;
  return {norm(std::move(name), layer, branches.front(), tensor_name)};
}

int TransformerBuilder::residual(std::string name, int layer, std::vector<int> branches) {
  const double traffic = (static_cast<double>(branches.size()) + 2) * m_.hidden;
  branches.push_back(stream_);
  return add(OperatorKind::residual, TensorSplit::replicated, std::move(name), layer, std::move(branches), h_,
             traffic);
}

int TransformerBuilder::embedding() {
  int op = add(OperatorKind::embedding, TensorSplit::vocabulary, "embedding", -1, {}, h_, 2.0 * m_.hidden);
  tensor(op, names_.tokens + ".weight", {m_.vocab, h_}, 0);
  if (m_.learned_positions)
    tensor(op, names_.positions + ".weight", {m_.max_positions + m_.position_offset, h_});
  if (m_.token_types > 0) tensor(op, names_.types + ".weight", {m_.token_types, h_});
  if (m_.post_norm || m_.embedding_norm) op = norm("embedding_norm", -1, op, names_.embedding_norm);
  return op;
}

void TransformerBuilder::single_block(char letter, int place, int layer, const std::string& t,
                                      const std::string& p) {
  const std::string number = std::to_string(place + 1);
  const int input = norm(p + "norm" + number, layer, stream_, t + (place == 0 ? names_.norm1 : names_.norm2));
  std::vector<int> branches;
  switch (letter) {
    case 'M':
      branches = {m_.state_space->kind == StateSpaceKind::mamba1 ? selective_scan(p, t, layer, input)
                                                                 : state_space(p, t, layer, input)};
      break;
    case '*':
    case 'A': {
      const int core = self_attention(p, t, layer, layer, input, letter == 'A');
      branches = {linear(p + "proj", layer, core,
                         {t + names_.proj, h_, operators_[core].output_elements, TensorSplit::row, 1,
                          m_.linear_bias || m_.proj_bias})};
      break;
    }
    default:
      branches = feed_forward(p, t, layer, letter == 'E', input);
  }
  stream_ = residual(p + "residual" + number, layer, std::move(branches));
}

void TransformerBuilder::block(int layer, int number, const std::string& p) {
  const std::string t = fmt::format(fmt::runtime(names_.layer), number);
  if (!m_.layer_pattern.empty()) {
    if (layer < m_.layers) {
      const std::string& letters = pattern_[static_cast<std::size_t>(layer)];
      for (std::size_t i = 0; i < letters.size(); ++i)
        single_block(letters[i], static_cast<int>(i), layer, t, p);
      return;
    }
    for (std::size_t i = 0; i < m_.multi_token_pattern.size(); ++i)
      single_block(m_.multi_token_pattern[i], 0, layer, fmt::format("{}{}.", t, i),
                   fmt::format("{}{}.", p, i));
    return;
  }
  // Multi-token prediction modules are of the last layer's kind.
  const int like = std::min(number, m_.layers - 1);
  const bool with_experts = m_.layer_has_experts(like);
  const bool bare = m_.post_norm || m_.no_input_norms;
  const int input = bare || (m_.first_norm_absent && number == 0)
                        ? stream_
                        : norm(p + "norm1", layer, stream_, t + names_.norm1);
  const int core = m_.mla ? latent_attention(p, t, layer, like, input)
                          : self_attention(p, t, layer, like, input, !m_.learned_positions);
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
  stream_ =
      residual(p + "residual1", layer, normed(p + "norm1_after", layer, {proj}, t + names_.norm1_after));
  if (m_.post_norm) stream_ = norm(p + "norm1", layer, stream_, t + names_.norm1);
  const int second = bare ? stream_ : norm(p + "norm2", layer, stream_, t + names_.norm2);
  stream_ = residual(p + "residual2", layer,
                     normed(p + "norm2_after", layer, feed_forward(p, t, layer, with_experts, second),
                            t + names_.norm2_after));
  if (m_.post_norm) stream_ = norm(p + "norm2", layer, stream_, t + names_.norm2);
}

int TransformerBuilder::head_and_loss(const std::string& p, int input, const std::string& weight, bool tied,
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

void TransformerBuilder::tail(std::vector<int> losses) {
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
    input = linear(
        "head_transform", layer, input,
        {"cls.predictions.transform.dense", h_, h_, TensorSplit::replicated, 1, !m_.unbiased_transform});
    input = add(OperatorKind::activation, TensorSplit::replicated, "head_activation", layer, {input}, h_,
                2.0 * m_.hidden);
    input = norm("head_norm", layer, input, "cls.predictions.transform.LayerNorm");
  }
  head_and_loss("", input, names_.head, m_.tied_embeddings, losses);
}

int TransformerBuilder::multi_token(int module) {
  const int layer = m_.layers;
  const std::string p = fmt::format("mtp.{}.", module);
  const int number = m_.layers + module;
  const std::string t = fmt::format(fmt::runtime(names_.layer), number);
  const int tokens =
      add(OperatorKind::embedding, TensorSplit::vocabulary, p + "embedding", layer, {}, h_, 2.0 * m_.hidden);
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

}  // namespace orrery::internal
