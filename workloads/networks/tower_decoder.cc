// A transformer's operators, by token, as part of a graph whose rows are samples.
#include <fmt/format.h>

#include <utility>

#include "base/error.h"
#include "workloads/networks/tower_builder.h"

namespace orrery::internal {
namespace {

OperatorKind kind_in_graph(OperatorKind kind) {
  switch (kind) {
    case OperatorKind::attention:
    case OperatorKind::head:
      return OperatorKind::linear;
    case OperatorKind::residual:
      return OperatorKind::elementwise;
    default:
      return kind;
  }
}

}  // namespace

std::string no_tower_because(const Transformer& model) {
  if (model.moe) return "has experts";
  if (model.state_space) return "has state spaces";
  if (model.mla) return "has latent attention";
  if (model.multi_token_layers > 0) return "predicts several tokens";
  if (model.attention_gate || model.attention_sinks) return "has gates or sinks in its attention";
  if (model.bidirectional) return "sees the tokens that it would predict";
  return {};
}

void TowerBuilder::language_model(const Transformer& model, const std::string& prefix,
                                  const TokenTensor& before, std::int64_t tokens,
                                  const std::vector<TokenTensor>& into_layers) {
  ORRERY_CHECK(no_tower_because(model).empty() && tokens > before.tokens, "no language model of a graph");
  std::vector<int> made;  // of each of its operators what stands here for it
  int layer = 0;
  for (Operator op : transformer_operators(model)) {
    if (op.kind == OperatorKind::loss_max || op.kind == OperatorKind::loss_sum) {
      made.push_back(-1);  // parts of the loss
      continue;
    }
    if (op.layer > layer) {
      if (const auto done = static_cast<std::size_t>(layer); done < into_layers.size()) {
        const TokenTensor& more = into_layers[done];
        made.back() =
            add(OperatorKind::elementwise, fmt::format("{}h.{}.into", prefix, layer), {more.op, made.back()},
                tokens * model.hidden, 3.0 * static_cast<double>(more.elements()));
        operators_.back().keeps_input = false;
      }
      layer = op.layer;
      if (layer < model.layers) next_layer();
    }
    const bool words = op.kind == OperatorKind::embedding;
    const std::int64_t rows = words ? tokens - before.tokens : tokens;
    std::vector<int> inputs;
    for (const int input : op.inputs)
      if (made[static_cast<std::size_t>(input)] >= 0) inputs.push_back(made[static_cast<std::size_t>(input)]);
    if (op.attention) {
      if (op.vector_elements > 0)
        inputs = {rotary(prefix + op.name + "_rotary", inputs.front(),
                         operators_[static_cast<std::size_t>(inputs.front())].output_elements,
                         std::exchange(op.vector_elements, 0) * static_cast<double>(rows))};
      const int length = static_cast<int>(tokens);
      op.matmuls = {
          {attended_keys(*op.attention, length),
           std::int64_t{op.attention->heads} * (op.attention->qk_head_dim + op.attention->v_head_dim), tokens,
           1}};
    } else {
      for (MatmulShape& shape : op.matmuls) shape.rows_per_row *= static_cast<double>(rows);
    }
    const OperatorKind kind = kind_in_graph(op.kind);
    const std::int64_t out = op.kind == OperatorKind::loss ? 1 : op.output_elements * rows;
    const int own = add(kind, prefix + op.name, inputs, out, op.vector_elements * static_cast<double>(rows));
    Operator& here = operators_.back();
    here.matmuls = op.matmuls;
    here.keeps_input = kind != OperatorKind::elementwise;
    for (ParameterTensor& tensor : op.parameters) {
      parameter(prefix + tensor.name, std::move(tensor.shape));
      if (!tensor.tied_to.empty()) here.parameters.back().tied_to = prefix + tensor.tied_to;
    }
    made.push_back(words ? joined(prefix + "sequence", before, {own, rows, model.hidden}).op : own);
  }
}

}  // namespace orrery::internal
