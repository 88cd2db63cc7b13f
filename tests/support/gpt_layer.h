// A GPT layer by hand, as workloads/workload.h says operators stand: for tests of costs that must not depend
// on the importers.
#pragma once

#include <string>
#include <vector>

#include "workloads/workload.h"

namespace orrery::test {

struct GptShape {
  int hidden = 0;
  int heads = 0;
  int vocab = 0;
  int layers = 1;
};

inline ParameterTensor tensor(std::string name, std::vector<std::int64_t> shape, int split_dim,
                              int parts = 1) {
  ParameterTensor t;
  t.name = std::move(name);
  t.shape = std::move(shape);
  t.split_dim = split_dim;
  t.split_parts = parts;
  return t;
}

inline Operator make(OperatorKind kind, TensorSplit split, std::string name, int layer, std::int64_t out,
                     double vector_elements) {
  Operator op;
  op.kind = kind;
  op.split = split;
  op.name = std::move(name);
  op.layer = layer;
  op.output_elements = out;
  op.vector_elements = vector_elements;
  return op;
}

// embedding | layers of: norm1 qkv attention proj residual1 norm2 mlp_up activation mlp_down residual2 |
// final_norm head loss_max loss_sum loss
inline std::vector<Operator> gpt_operators(const GptShape& g) {
  const std::int64_t h = g.hidden, v = g.vocab;
  std::vector<Operator> ops;
  const auto add = [&](Operator op) {
    if (!ops.empty()) op.inputs = {static_cast<int>(ops.size()) - 1};
    ops.push_back(std::move(op));
  };
  const auto linear = [&](std::string name, TensorSplit split, int layer, std::int64_t n, std::int64_t k,
                          int parts) {
    Operator op = make(OperatorKind::linear, split, name, layer, n, 0);
    op.matmuls = {{1, n, k, 1}};
    const bool column = split == TensorSplit::column;
    op.parameters = {tensor(name + ".weight", {k, n}, column ? 1 : 0, parts),
                     tensor(name + ".bias", {n}, column ? 0 : -1, parts)};
    return op;
  };
  Operator embedding =
      make(OperatorKind::embedding, TensorSplit::vocabulary, "embedding", -1, h, 2.0 * g.hidden);
  embedding.parameters = {tensor("wte", {v, h}, 0)};
  add(embedding);
  for (int l = 0; l < g.layers; ++l) {
    const auto norm = [&](std::string name) {
      Operator op = make(OperatorKind::norm, TensorSplit::replicated, name, l, h, 2.0 * g.hidden);
      op.parameters = {tensor(name + ".weight", {h}, -1), tensor(name + ".bias", {h}, -1)};
      return op;
    };
    const auto residual = [&](std::string name) {
      return make(OperatorKind::residual, TensorSplit::replicated, name, l, h, 3.0 * g.hidden);
    };
    add(norm("norm1"));
    add(linear("qkv", TensorSplit::column, l, 3 * h, h, 3));
    Operator attention = make(OperatorKind::attention, TensorSplit::heads, "attention", l, h, 0);
    attention.attention = AttentionShape{g.heads, g.heads, g.hidden / g.heads, g.hidden / g.heads, true, 0};
    add(attention);
    add(linear("proj", TensorSplit::row, l, h, h, 1));
    add(residual("residual1"));
    add(norm("norm2"));
    add(linear("mlp_up", TensorSplit::column, l, 4 * h, h, 1));
    add(make(OperatorKind::activation, TensorSplit::column, "activation", l, 4 * h, 8.0 * g.hidden));
    add(linear("mlp_down", TensorSplit::row, l, h, 4 * h, 1));
    add(residual("residual2"));
  }
  Operator final_norm =
      make(OperatorKind::norm, TensorSplit::replicated, "final_norm", g.layers, h, 2.0 * g.hidden);
  final_norm.parameters = {tensor("ln_f.weight", {h}, -1)};
  add(final_norm);
  Operator head = make(OperatorKind::head, TensorSplit::vocabulary, "head", g.layers, v, 0);
  head.matmuls = {{1, v, h, 1}};
  head.parameters = {tensor("lm_head", {v, h}, 0)};
  add(head);
  add(make(OperatorKind::loss_max, TensorSplit::vocabulary, "loss_max", g.layers, 1, 1.0 * g.vocab));
  add(make(OperatorKind::loss_sum, TensorSplit::vocabulary, "loss_sum", g.layers, 2, 1.0 * g.vocab));
  add(make(OperatorKind::loss, TensorSplit::vocabulary, "loss", g.layers, 1, 2.0 * g.vocab));
  return ops;
}

}  // namespace orrery::test
