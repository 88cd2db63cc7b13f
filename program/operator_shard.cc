#include "program/operator_shard.h"

#include <algorithm>

namespace orrery::internal {

double expert_load(const Shard& shard) {
  return shard.capacity_factor > 0 ? shard.capacity_factor : 1;
}

bool of_experts(const Operator& op) {
  return op.active_experts > 0 &&
         (op.kind == OperatorKind::dispatch || op.kind == OperatorKind::expert_linear ||
          op.kind == OperatorKind::activation || op.kind == OperatorKind::combine);
}

double sequence_split(const Shard& shard) {
  return shard.sequence_parallel ? shard.tp : 1;
}

double gathered_ranks(const Shard& shard) {
  return shard.sequence_parallel ? shard.etp : 1;
}

std::int64_t local_elements(const ParameterTensor& tensor, const Shard& shard) {
  std::int64_t elements = 1;
  for (std::size_t d = 0; d < tensor.shape.size(); ++d) {
    std::int64_t size = tensor.shape[d];
    if (tensor.expert && d == 0) {
      size = (size + shard.ep - 1) / shard.ep;
    } else if (static_cast<int>(d) == tensor.split_dim) {
      const std::int64_t ranks = tensor.expert ? shard.etp : shard.tp;
      const std::int64_t parts = std::max(1, tensor.split_parts);
      size = parts * ((size / parts + ranks - 1) / ranks);
    }
    elements *= size;
  }
  return elements;
}

double local_rows(const Operator& op, const Shard& shard) {
  if (of_experts(op)) {
    const bool inside = op.kind == OperatorKind::expert_linear || op.kind == OperatorKind::activation;
    return shard.rows / sequence_split(shard) * (inside ? gathered_ranks(shard) : 1) * expert_load(shard);
  }
  if (op.kind == OperatorKind::attention) return shard.rows;
  if (op.split == TensorSplit::replicated) return shard.rows / sequence_split(shard);
  return shard.rows;
}

double output_split(const Operator& op, const Shard& shard) {
  const double ranks = of_experts(op) ? shard.etp : shard.tp;
  switch (op.split) {
    case TensorSplit::column:
    case TensorSplit::heads:
      return ranks;
    case TensorSplit::vocabulary:
      return op.kind == OperatorKind::head ? ranks : 1;
    case TensorSplit::replicated:
    case TensorSplit::row:
      return 1;
  }
  return 1;
}

double input_split(const Operator& op, const Shard& shard) {
  const double ranks = of_experts(op) ? shard.etp : shard.tp;
  return op.split == TensorSplit::row || op.split == TensorSplit::heads ? ranks : 1;
}

double vector_elements(const Operator& op) {
  if (op.vector_elements > 0) return op.vector_elements;
  const auto out = static_cast<double>(op.output_elements);
  switch (op.kind) {
    case OperatorKind::embedding:
    case OperatorKind::norm:
    case OperatorKind::activation:
    case OperatorKind::elementwise:
    case OperatorKind::pool:
    case OperatorKind::interaction:
      return 2 * out;
    case OperatorKind::residual:
    case OperatorKind::batch_norm:  // statistics, then read and write
      return 3 * out;
    case OperatorKind::dispatch:
      return out + out / std::max(1, op.active_experts);
    case OperatorKind::combine:
      return out + out * std::max(1, op.active_experts);
    case OperatorKind::router:
      return 4 * out;  // softmax, top-k, normalisation over the experts
    case OperatorKind::linear:
    case OperatorKind::attention:
    case OperatorKind::expert_linear:
    case OperatorKind::head:
    case OperatorKind::loss_max:
    case OperatorKind::loss_sum:
    case OperatorKind::loss:
    case OperatorKind::conv:
    case OperatorKind::scan:
      return 0;
  }
  return 0;
}

double attended_keys(const AttentionShape& shape, int seq_len) {
  const double s = std::max(1, seq_len);
  const double window = shape.window > 0 ? std::min<double>(shape.window, s) : s;
  if (!shape.causal) return shape.window > 0 ? std::min(2 * window, s) : s;
  // Query i sees min(i, window) keys: window - window^2 / 2s on average, s / 2 without a window.
  return window - window * window / (2 * s);
}

}  // namespace orrery::internal
