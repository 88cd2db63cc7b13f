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

// The operator's input as it is kept: a column-split operator needs the whole row but keeps its sequence
// shard.
double kept_input_bytes(const Operator& op, const Shard& shard) {
  if (!op.keeps_input) return 0;
  const DType type = product_type(op.kind, shard.precision);
  const double element = is_narrow(type) ? packed_bytes_of(type) : bytes_of(storage_type(shard.precision));
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
      return shard.rows * features / split * element;
    }
    case OperatorKind::expert_linear: {
      double features = 0;
      for (const MatmulShape& shape : op.matmuls) features = std::max(features, static_cast<double>(shape.k));
      if (op.split == TensorSplit::row) features /= shard.etp;
      return local_rows(op, shard) * std::max(1, op.active_experts) * features * element;
    }
    case OperatorKind::norm:
      return local_rows(op, shard) * static_cast<double>(op.output_elements) * element;
    case OperatorKind::activation: {
      const double in = vector_elements(op) - static_cast<double>(op.output_elements);
      return local_rows(op, shard) * in / output_split(op, shard) * element;
    }
    case OperatorKind::combine:
      // The experts' outputs, for the gradient of their weights: of all ranks that share the experts, for
      // Megatron-Core weighs inside them.
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
      const double q_k_v = static_cast<double>(a.heads) * a.qk_head_dim +
                           static_cast<double>(a.kv_heads) * (a.qk_head_dim + a.v_head_dim);
      return shard.rows * q_k_v * element;
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
      return shard.rows * logits * (runtime.fused_loss ? element : 4);
    }
    default:
      return 0;
  }
}

// The attention core's own: scores after softmax, dropout's mask and output; or a fused kernel's row sums.
double core_bytes(const Operator& op, const Shard& shard, const RuntimeProfile& runtime) {
  if (op.kind != OperatorKind::attention || !op.attention) return 0;
  const double element = bytes_of(storage_type(shard.precision));
  const double heads = local_attention(*op.attention, shard).heads;
  if (shard.fused_attention) return shard.rows * heads * bytes_of(DType::fp32);
  return shard.rows * heads * shard.seq_len * (runtime.dropout ? 2 * element + 1 : element);
}

}  // namespace

double output_bytes(const Operator& op, const Shard& shard) {
  const double element = on_logits(op.kind) ? 4 : bytes_of(storage_type(shard.precision));
  double rows = local_rows(op, shard);
  if (on_logits(op.kind)) rows = shard.rows;
  const double features = static_cast<double>(op.output_elements) / output_split(op, shard);
  return rows * features * element;
}

double saved_bytes(const Operator& op, const Shard& shard, const RuntimeProfile& runtime) {
  if (!works_backward(op)) return 0;
  if (!of_transformers(op.kind)) {
    const double element = bytes_of(storage_type(shard.precision));
    return local_rows(op, shard) * static_cast<double>(op.saved_elements) / output_split(op, shard) * element;
  }
  return kept_input_bytes(op, shard) + kept_extra_bytes(op, shard, runtime) + core_bytes(op, shard, runtime) +
         adapter_saved_bytes(op, shard);
}

double saved_bytes(const std::vector<Operator>& operators, int begin, int end, bool selective,
                   const Shard& shard, const RuntimeProfile& runtime) {
  double total = 0;
  std::set<int> kept;  // operators whose output is kept already
  for (int i = begin; i < end; ++i) {
    const Operator& op = operators[i];
    if (!works_backward(op)) continue;
    if (of_transformers(op.kind)) {
      const double input = kept_input_bytes(op, shard);
      // Products that read one tensor (the projections of latent attention, shared experts) keep it once.
      const bool product = op.kind == OperatorKind::linear || op.kind == OperatorKind::router;
      const bool counted =
          product && input > 0 && !op.inputs.empty() && !kept.insert(op.inputs.front()).second;
      if (!counted) total += input;
      total += kept_extra_bytes(op, shard, runtime) + adapter_saved_bytes(op, shard);
      if (!selective) total += core_bytes(op, shard, runtime);
      continue;
    }
    total += saved_bytes(op, shard, runtime);
    if (!op.keeps_input) continue;
    for (const int input : op.inputs)
      if (kept.insert(input).second) total += output_bytes(operators[input], shard);
  }
  return total;
}

}  // namespace orrery
