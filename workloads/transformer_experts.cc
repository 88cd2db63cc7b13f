// MLPs and mixtures of experts.
#include <string_view>
#include <utility>

#include "workloads/transformer_builder.h"

namespace orrery::internal {

int TransformerBuilder::mlp(const std::string& p, const std::string& t, const std::string& prefix,
                            const std::string& gate, const std::string& up_name, const std::string& down_name,
                            int layer, int input, std::int64_t width, const char* kind) {
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

void TransformerBuilder::expert_tensor(int op, const std::string& name, std::int64_t rows,
                                       std::int64_t columns, int split_dim) {
  const std::int64_t experts = m_.moe->experts;
  tensor(op, name + ".weight", {experts, rows, columns}, split_dim);
  operators_[op].parameters.back().expert = true;
}

std::vector<int> TransformerBuilder::experts(const std::string& p, const std::string& t, int layer,
                                             int input) {
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
  if (moe.router_linear_bias) tensor(router, t + names_.router + ".bias", {moe.experts});
  if (moe.selection_bias) tensor(router, t + names_.router_bias, {moe.experts});
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
  if (moe.expert_up_bias) {
    tensor(up, t + names_.expert + names_.expert_up + ".bias", {moe.experts, up_width}, 1,
           m_.gated_ffn ? 2 : 1);
    operators_[up].parameters.back().expert = true;
  }
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
  int out = expert_operator(OperatorKind::combine, TensorSplit::replicated, "combine", {down, router}, width,
                            moved);
  if (moe.latent > 0)
    out = linear(p + "latent_up", layer, out,
                 {t + names_.latent_up, h_, width, TensorSplit::replicated, 1, false});
  std::vector<int> branches = {out};
  if (moe.shared_ffn_hidden > 0)
    branches.push_back(mlp(p, t, names_.shared, names_.expert_gate, names_.expert_up, names_.expert_down,
                           layer, input, moe.shared_ffn_hidden, "shared"));
  return branches;
}

std::vector<int> TransformerBuilder::feed_forward(const std::string& p, const std::string& t, int layer,
                                                  bool with_experts, int input) {
  if (with_experts) return experts(p, t, layer, input);
  return {mlp(p, t, "", names_.gate, names_.up, names_.down, layer, input, m_.ffn_hidden, "mlp")};
}

}  // namespace orrery::internal
