// Small plans by hand, for tests of lowering that must not depend on importers and catalogs.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "program/lower/lowering.h"
#include "program/plan.h"

namespace orrery::test {

struct SmallModel {
  int layers = 4;
  int hidden = 16;
  int heads = 4;
  int vocab = 50;  // padded where it does not divide
  int seq_len = 8;
  bool tied = true;
  bool learned_positions = true;
  int experts = 0;  // > 0: every layer's MLP is a mixture of so many
  int experts_per_token = 2;
};

class OperatorList {
 public:
  int add(OperatorKind kind, TensorSplit split, std::string name, int layer, std::vector<int> inputs,
          std::int64_t output_elements) {
    Operator op;
    op.kind = kind;
    op.split = split;
    op.name = std::move(name);
    op.layer = layer;
    op.inputs = std::move(inputs);
    op.output_elements = output_elements;
    operators.push_back(std::move(op));
    return static_cast<int>(operators.size()) - 1;
  }
  void parameter(const std::string& name, std::vector<std::int64_t> shape, int split_dim, int parts = 1) {
    ParameterTensor tensor;
    tensor.name = operators.back().name + "." + name;
    tensor.shape = std::move(shape);
    tensor.split_dim = split_dim;
    tensor.split_parts = parts;
    operators.back().parameters.push_back(std::move(tensor));
  }
  int norm(const std::string& name, int layer, int input, std::int64_t h) {
    const int op = add(OperatorKind::norm, TensorSplit::replicated, name, layer, {input}, h);
    parameter("weight", {h}, -1);
    parameter("bias", {h}, -1);
    return op;
  }
  int linear(const std::string& name, TensorSplit split, int layer, int input, std::int64_t k, std::int64_t n,
             int parts = 1) {
    const int op = add(OperatorKind::linear, split, name, layer, {input}, n);
    const bool column = split == TensorSplit::column;
    parameter("weight", {k, n}, column ? 1 : 0, column ? parts : 1);
    parameter("bias", {n}, column ? 0 : -1, column ? parts : 1);
    operators.back().matmuls.push_back({1, n, k, 1});
    return op;
  }

  std::vector<Operator> operators;
};

inline int add_experts(OperatorList& list, const SmallModel& model, int layer, int norm) {
  const std::int64_t h = model.hidden;
  const std::int64_t f = 4 * h;
  const auto of_experts = [&](int op) {
    list.operators[static_cast<std::size_t>(op)].active_experts = model.experts_per_token;
    list.operators[static_cast<std::size_t>(op)].experts = model.experts;
    return op;
  };
  const auto product = [&](const std::string& name, TensorSplit split, int input, std::int64_t k,
                           std::int64_t n) {
    const int op = of_experts(
        list.add(OperatorKind::expert_linear, split, name, layer, {input}, model.experts_per_token * n));
    list.parameter("weight", {model.experts, k, n}, split == TensorSplit::column ? 2 : 1);
    list.operators.back().parameters.back().expert = true;
    list.operators.back().matmuls.push_back({1, n, k, 1});
    return op;
  };
  const std::string prefix = "h." + std::to_string(layer) + ".";
  const int router = list.add(OperatorKind::router, TensorSplit::replicated, prefix + "router", layer, {norm},
                              model.experts);
  list.parameter("weight", {h, model.experts}, -1);
  const int dispatch =
      of_experts(list.add(OperatorKind::dispatch, TensorSplit::replicated, prefix + "dispatch", layer,
                          {norm, router}, h * model.experts_per_token));
  const int up = product(prefix + "experts_up", TensorSplit::column, dispatch, h, f);
  const int activation =
      of_experts(list.add(OperatorKind::activation, TensorSplit::column, prefix + "activation", layer, {up},
                          model.experts_per_token * f));
  const int down = product(prefix + "experts_down", TensorSplit::row, activation, f, h);
  return of_experts(
      list.add(OperatorKind::combine, TensorSplit::replicated, prefix + "combine", layer, {down, router}, h));
}

// embedding | layers | final_norm head loss_max loss_sum loss, as workloads/workload.h has them.
inline std::vector<Operator> small_operators(const SmallModel& model) {
  const std::int64_t h = model.hidden;
  OperatorList list;
  int stream = list.add(OperatorKind::embedding, TensorSplit::vocabulary, "embedding", -1, {}, h);
  list.parameter("wte", {model.vocab, h}, 0);
  if (model.learned_positions) list.parameter("wpe", {model.seq_len, h}, -1);
  for (int layer = 0; layer < model.layers; ++layer) {
    const std::string prefix = "h." + std::to_string(layer) + ".";
    const int norm1 = list.norm(prefix + "norm1", layer, stream, h);
    const int qkv = list.linear(prefix + "qkv", TensorSplit::column, layer, norm1, h, 3 * h, 3);
    const int attention =
        list.add(OperatorKind::attention, TensorSplit::heads, prefix + "attention", layer, {qkv}, h);
    const int head_dim = model.hidden / model.heads;
    list.operators.back().attention = AttentionShape{model.heads, model.heads, head_dim, head_dim, true, 0};
    const int proj = list.linear(prefix + "proj", TensorSplit::row, layer, attention, h, h);
    const int residual1 = list.add(OperatorKind::residual, TensorSplit::replicated, prefix + "residual1",
                                   layer, {proj, stream}, h);
    const int norm2 = list.norm(prefix + "norm2", layer, residual1, h);
    int branch = 0;
    if (model.experts > 0) {
      branch = add_experts(list, model, layer, norm2);
    } else {
      const int up = list.linear(prefix + "mlp_up", TensorSplit::column, layer, norm2, h, 4 * h);
      const int activation =
          list.add(OperatorKind::activation, TensorSplit::column, prefix + "activation", layer, {up}, 4 * h);
      branch = list.linear(prefix + "mlp_down", TensorSplit::row, layer, activation, 4 * h, h);
    }
    stream = list.add(OperatorKind::residual, TensorSplit::replicated, prefix + "residual2", layer,
                      {branch, residual1}, h);
  }
  const int norm = list.norm("final_norm", model.layers, stream, h);
  const int head =
      list.add(OperatorKind::head, TensorSplit::vocabulary, "head", model.layers, {norm}, model.vocab);
  list.parameter("weight", {model.vocab, h}, 0);
  list.operators.back().matmuls.push_back({1, model.vocab, h, 1});
  if (model.tied) list.operators.back().parameters.back().tied_to = "embedding.wte";
  const int loss_max =
      list.add(OperatorKind::loss_max, TensorSplit::vocabulary, "loss_max", model.layers, {head}, 1);
  const int loss_sum = list.add(OperatorKind::loss_sum, TensorSplit::vocabulary, "loss_sum", model.layers,
                                {head, loss_max}, 2);
  list.add(OperatorKind::loss, TensorSplit::vocabulary, "loss", model.layers, {head, loss_max, loss_sum}, 1);
  return std::move(list.operators);
}

inline Workload small_workload(const SmallModel& model) {
  Workload workload;
  workload.name = "small";
  Transformer transformer;
  transformer.family = "gpt2";
  transformer.layers = model.layers;
  transformer.hidden = model.hidden;
  transformer.heads = model.heads;
  transformer.kv_heads = model.heads;
  transformer.head_dim = model.hidden / model.heads;
  transformer.ffn_hidden = 4 * model.hidden;
  transformer.vocab = model.vocab;
  transformer.max_positions = model.seq_len;
  transformer.learned_positions = model.learned_positions;
  transformer.tied_embeddings = model.tied;
  if (model.experts > 0) {
    MixtureOfExperts moe;
    moe.experts = model.experts;
    moe.experts_per_token = model.experts_per_token;
    moe.expert_ffn_hidden = 4 * model.hidden;
    transformer.moe = moe;
  }
  workload.transformer = transformer;
  workload.operators = small_operators(model);
  workload.layers = model.layers;
  workload.default_seq_len = model.seq_len;
  return workload;
}

inline std::shared_ptr<Job> small_job(const SmallModel& model, std::int64_t global_batch) {
  auto job = std::make_shared<Job>();
  job->workload = small_workload(model);
  job->cluster.name = "cores";
  NodeGroup group;
  group.count = 1;
  group.node.devices = 1;
  group.node.shared_cores = 1;
  job->cluster.groups.push_back(group);
  job->runtime.name = "test";
  job->runtime.clip_gradients = false;
  job->runtime.fp32_gradients = true;
  job->runtime.overlap_pipeline = true;
  job->training.global_batch = global_batch;
  job->training.seq_len = model.seq_len;
  job->training.precision = DType::fp32;
  job->training.optimizer = Optimizer::sgd;
  return job;
}

inline Plan small_plan(const Choices& choices, std::int64_t micro_batches = 4, const SmallModel& model = {}) {
  return {small_job(model, micro_batches * choices.dp * choices.micro_batch), choices};
}

inline std::vector<Program> lower_all(const Plan& plan) {
  std::vector<Program> programs;
  for (int rank = 0; rank < plan.choices.world(); ++rank) programs.push_back(lower(plan, rank));
  return programs;
}

}  // namespace orrery::test
