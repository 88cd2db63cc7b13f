// Bytes of outputs and of what the backward pass needs: Korthikanti et al., arXiv 2205.05198, section 4.
#include <algorithm>
#include <set>

#include "program/operator_shard.h"
#include "program/operator_work.h"

namespace orrery {
namespace {

bool on_logits(OperatorKind kind) {
  return kind == OperatorKind::loss_max || kind == OperatorKind::loss_sum || kind == OperatorKind::loss;
}

bool of_transformers(OperatorKind kind) {
  switch (kind) {
    case OperatorKind::conv:
    case OperatorKind::batch_norm:
    case OperatorKind::pool:
    case OperatorKind::elementwise:
    case OperatorKind::interaction:
      return false;
    default:
      return true;
  }
}

// Not only where the backward pass asks for it.
bool is_kept_quantised(const Operator& op, const RuntimeProfile& runtime) {
  return runtime.quantised_keep_input && op.passes_gradient && op.base != BaseType::none &&
         op.base != BaseType::int8;
}
bool keeps_input(const Operator& op, const RuntimeProfile& runtime) {
  return op.keeps_input || is_kept_quantised(op, runtime);
}

// The operator's input as it is kept: a column-split operator needs the whole row but keeps its sequence
// shard.
double kept_input_bytes(const Operator& op, const Shard& shard, const RuntimeProfile& runtime) {
  if (!keeps_input(op, runtime)) return 0;
  const DType type = product_type(op.kind, shard.precision);
  const double element = is_narrow(type) ? packed_bytes_of(type) : bytes_of(storage_type(shard.precision));
  const bool casts = internal::autocasts(shard, runtime);
  if (casts && (op.kind == OperatorKind::norm || op.kind == OperatorKind::activation))
    return internal::autocast_kept(op, shard);
  switch (op.kind) {
    case OperatorKind::linear:
    case OperatorKind::head:
    case OperatorKind::router: {
      double features = 0;
      for (const MatmulShape& shape : op.matmuls)
        features = std::max(features, shape.rows_per_row * static_cast<double>(shape.k));
      if (op.kind == OperatorKind::router && features == 0) return 0;
      const double split =
          (op.split == TensorSplit::row ? shard.tp : sequence_split(shard)) * rows_split(op, shard);
      // The base's product keeps what its adapters read behind their dropout.
      const double tensors = is_kept_quantised(op, runtime) && !op.adapters.empty() ? 2
                             : casts ? internal::autocast_inputs(op)
                                     : 1;
      return shard.rows * tensors * features / split * element;
    }
    case OperatorKind::expert_linear: {
      double features = 0;
      for (const MatmulShape& shape : op.matmuls) features = std::max(features, static_cast<double>(shape.k));
      if (op.split == TensorSplit::row) features /= shard.etp;
      return local_rows(op, shard) * std::max(1, op.active_experts) * features * element;
    }
    case OperatorKind::norm: {
      // Made of PyTorch's operators it keeps what it normalised as well, which the last of them multiplies by
      // the weights.
      const double tensors = is_rms_norm(op) && !runtime.fused_elementwise ? 2 : 1;
      return local_rows(op, shard) * tensors * static_cast<double>(op.output_elements) * element;
    }
    case OperatorKind::activation: {
      const auto out = static_cast<double>(op.output_elements);
      double in = vector_elements(op) - out;
      // Not fused, the gate's activation is a tensor of its own that the product behind it keeps.
      if (!runtime.fused_elementwise && in > 1.5 * out && op.experts == 0) in += out;
      return local_rows(op, shard) * in / output_split(op, shard) * element;
    }
    case OperatorKind::combine:
      // The experts' outputs, for the gradient of their weights: of all ranks that share the experts. Where
      // the weights are applied with the activation (weighted_swiglu), nothing reads them again.
      if (runtime.eager_experts || runtime.fused_experts) return 0;
      return local_rows(op, shard) * gathered_ranks(shard) * static_cast<double>(op.output_elements) *
             std::max(1, op.active_experts) * element;
    default:
      return 0;
  }
}

// What an operator keeps that selective recomputation does not bring back.
double kept_extra_bytes(const Operator& op, const Shard& shard, const RuntimeProfile& runtime) {
  const double element = bytes_of(storage_type(shard.precision));
  switch (op.kind) {
    case OperatorKind::attention: {
      if (!op.attention) return 0;
      const AttentionShape a = local_attention(*op.attention, shard);
      const double q_k = static_cast<double>(a.heads + a.kv_heads) * a.qk_head_dim;
      const double q_k_v = q_k + static_cast<double>(a.kv_heads) * a.v_head_dim;
      const double wide = static_cast<double>(a.heads) * a.v_head_dim * runtime.kept_hidden_tensors;
      if (internal::autocasts(shard, runtime))
        return shard.rows * (q_k_v + wide) * element + internal::autocast_kept(op, shard);
      // What norms of queries and keys read, and, made of PyTorch's operators, what they normalised.
      const double normed = a.qk_norm ? q_k * (runtime.fused_elementwise ? 1 : 2) : 0;
      return shard.rows * (q_k_v + wide + normed) * element;
    }
    case OperatorKind::scan: {
      // What came in, and what came out before the norm (ssd_combined.py: zxbcdt and out).
      if (!op.state_space) return 0;
      const StateSpaceShape& s = *op.state_space;
      return shard.rows * static_cast<double>(2 * s.inner() + s.convolved() + s.heads) / shard.tp * element;
    }
    case OperatorKind::residual:
    case OperatorKind::embedding:
      // Dropout's mask, a byte each.
      return runtime.dropout ? shard.rows / sequence_split(shard) * static_cast<double>(op.output_elements)
                             : 0;
    case OperatorKind::loss: {
      // The softmax of the logits in fp32; a fused loss keeps the logits as they are.
      const double logits = op.vector_elements > 0 ? op.vector_elements / 2 / shard.tp : 0;
      if (runtime.logit_bytes > 0) return shard.rows * logits * runtime.logit_bytes;
      return shard.rows * logits * (runtime.fused_loss ? element : 4) / std::max(1, runtime.loss_chunks);
    }
    default:
      return 0;
  }
}

// What an operator keeps for itself, and forgets where it is brought back. The attention core: scores after
// softmax, dropout's mask and output; or a fused kernel's row sums. Experts' plain activation, where the
// routing weights are applied to it: what it puts out, for their gradient (Megatron-Core's
// transformer/mlp.py, per_token_scale); gated ones do both in one kernel.
double core_bytes(const Operator& op, const Shard& shard, const RuntimeProfile& runtime) {
  if (op.kind == OperatorKind::activation) {
    const bool weighed = op.experts > 0 && (runtime.eager_experts || runtime.fused_experts);
    return weighed && !shard.gated_experts ? output_bytes(op, shard) : 0;
  }
  if (op.kind != OperatorKind::attention || !op.attention) return 0;
  const double element = bytes_of(storage_type(shard.precision));
  const double heads = local_attention(*op.attention, shard).heads;
  if (shard.fused_attention || shard.scores_by_blocks)
    return shard.rows * heads * bytes_of(DType::fp32) +
           (shard.copies_attention_output ? output_bytes(op, shard) : 0);
  return shard.rows * heads * shard.seq_len * (runtime.dropout ? 2 * element + 1 : element);
}

// Its gradient reads what it puts out, which the product behind it keeps.
bool forgets_input(const Operator& op, const Shard& shard) {
  return op.kind == OperatorKind::activation && shard.relu;
}

}  // namespace

bool is_rms_norm(const Operator& op) {
  return op.kind == OperatorKind::norm && op.parameters.size() + op.frozen.size() == 1;
}

double largest_local_tensor(const Operator& op, const Shard& shard) {
  double largest = 0;
  for (const ParameterTensor& tensor : op.parameters)
    largest = std::max(largest, static_cast<double>(local_elements(tensor, shard)));
  return largest;
}

double output_bytes(const Operator& op, const Shard& shard) {
  const double element = on_logits(op.kind) ? 4 : bytes_of(storage_type(shard.precision));
  double rows = local_rows(op, shard);
  if (on_logits(op.kind)) rows = shard.rows;
  const double features = static_cast<double>(op.output_elements) / output_split(op, shard);
  return rows * features * element;
}

double message_share(const Plan& plan) {
  const Choices& c = plan.choices;
  const bool alike = c.tp > 1 && !c.sequence_parallel && plan.job->workload.transformer;
  return alike && plan.job->runtime.partitioned_messages ? 1.0 / c.tp : 1;
}

double saved_bytes(const Operator& op, const Shard& shard, const RuntimeProfile& runtime) {
  if (!works_backward(op)) return 0;
  if (!of_transformers(op.kind)) {
    const double element = bytes_of(storage_type(shard.precision));
    return local_rows(op, shard) * static_cast<double>(op.saved_elements) / output_split(op, shard) * element;
  }
  return (forgets_input(op, shard) ? 0 : kept_input_bytes(op, shard, runtime)) +
         kept_extra_bytes(op, shard, runtime) + core_bytes(op, shard, runtime) +
         adapter_saved_bytes(op, shard);
}

namespace {

// By who reads it; a 4-bit product keeps a copy.
bool output_is_kept(const std::vector<Operator>& operators, int i, int end) {
  return std::any_of(operators.begin() + i + 1, operators.begin() + end, [&](const Operator& op) {
    return op.keeps_input && std::find(op.inputs.begin(), op.inputs.end(), i) != op.inputs.end();
  });
}

}  // namespace

double saved_bytes(const std::vector<Operator>& operators, int begin, int end, ModuleSet modules,
                   const Shard& shard, const RuntimeProfile& runtime) {
  double total = 0;
  std::set<int> kept;  // operators whose output is kept already
  for (int i = begin; i < end; ++i) {
    const Operator& op = operators[i];
    if (!works_backward(op)) continue;
    if (of_transformers(op.kind)) {
      // What was brought back a moment ago was not kept; but for a core's output, which is what it hands on.
      const bool again = !op.inputs.empty() && op.inputs.front() >= begin &&
                         operators[op.inputs.front()].kind != OperatorKind::attention &&
                         brought_back(operators, op.inputs.front(), modules);
      const bool core = op.kind == OperatorKind::attention;
      const bool back = brought_back(operators, i, modules);  // then it needs what it read
      const bool no_input = again || (forgets_input(op, shard) && !back);
      const double input = no_input ? 0 : kept_input_bytes(op, shard, runtime);
      // Products that read one tensor (the projections of latent attention, shared experts) keep it once.
      const bool product = (op.kind == OperatorKind::linear || op.kind == OperatorKind::router) &&
                           !internal::autocasts(shard, runtime);  // which casts it for each
      const bool counted =
          product && input > 0 && !op.inputs.empty() && !kept.insert(op.inputs.front()).second;
      if (!counted) total += input;
      // An attention core's queries, keys and values are what its inputs put out.
      if (!again || !core) total += kept_extra_bytes(op, shard, runtime);
      total += adapter_saved_bytes(op, shard);
      if (!back) total += core_bytes(op, shard, runtime);
      // The gradient of a fused core reads what the core put out.
      if (core && (shard.fused_attention || shard.scores_by_blocks) && !output_is_kept(operators, i, end))
        total += output_bytes(op, shard);
      continue;
    }
    total += saved_bytes(op, shard, runtime);
    if (!keeps_input(op, runtime)) continue;
    for (const int input : op.inputs)
      if (kept.insert(input).second) total += output_bytes(operators[input], shard);
  }
  return total;
}

}  // namespace orrery
