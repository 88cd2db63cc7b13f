#include "program/operator_shard.h"

#include <algorithm>
#include <cmath>

#include "program/forms.h"
#include "program/tensor_shard.h"

namespace orrery {

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
  if (tensor.dealt_out)
    return static_cast<std::int64_t>(
        std::ceil(static_cast<double>(tensor.elements()) * (shard.tp > 1 ? shard.table_elements : 1)));
  return local_elements(tensor, ShardPlace{shard.tp, 0, shard.ep, 0, shard.etp, 0});
}

bool partial_over_tensor_ranks(const Operator& op, const ParameterTensor& tensor, const Shard& shard) {
  if (shard.tp == 1 || tensor.split_dim >= 0 || tensor.expert) return false;
  switch (op.split) {
    case TensorSplit::column:
    case TensorSplit::heads:
      return true;  // a tensor that every rank applies to its own features, such as the norm of a head's
                    // queries
    case TensorSplit::table:
    case TensorSplit::vocabulary:
      return false;  // the positions' gradient is that of all rows
    case TensorSplit::row:
      // An adapter's second factor is applied to parts of a sum; a bias to the whole.
      return shard.sequence_parallel || !op.adapters.empty();
    case TensorSplit::replicated:
      return shard.sequence_parallel;
  }
  return false;
}

bool gradient_is_partial(const Operator& op, const ParameterTensor& tensor, const Shard& shard) {
  return std::any_of(shard.forms.begin(), shard.forms.end(), [&](const FormInUse& use) {
    return use.form->gradient_is_partial != nullptr && use.form->gradient_is_partial(op, tensor, shard);
  });
}

double rows_split(const Operator& op, const Shard& shard) {
  double ranks = 1;
  for (const FormInUse& use : shard.forms)
    if (use.form->rows_split != nullptr) ranks *= use.form->rows_split(op, use.degree);
  return ranks;
}

double local_rows(const Operator& op, const Shard& shard) {
  const double rows = shard.rows / rows_split(op, shard);
  if (of_experts(op)) {
    const bool inside = op.kind == OperatorKind::expert_linear || op.kind == OperatorKind::activation;
    return rows / sequence_split(shard) * (inside ? gathered_ranks(shard) : 1) * expert_load(shard);
  }
  if (op.kind == OperatorKind::attention) return rows;
  if (op.split == TensorSplit::replicated) return rows / sequence_split(shard);
  return rows;
}

double shared_rows(const Shard& shard) {
  return shard.rows / shard.tp;
}

double output_split(const Operator& op, const Shard& shard) {
  const double ranks = of_experts(op) ? shard.etp : shard.tp;
  switch (op.split) {
    case TensorSplit::column:
    case TensorSplit::heads:
      return ranks;
    case TensorSplit::vocabulary:
      return op.kind == OperatorKind::head ? ranks : 1;
    case TensorSplit::table:
      return shard.tp > 1 ? 1 / shard.table_outputs : 1;
    case TensorSplit::replicated:
    case TensorSplit::row:
      return 1;
  }
  return 1;
}

std::int64_t local_columns(const Operator& op, const Shard& shard) {
  return static_cast<std::int64_t>(static_cast<double>(op.output_elements) / output_split(op, shard));
}

double local_outputs(const Operator& op, const Shard& shard) {
  return local_rows(op, shard) * static_cast<double>(op.output_elements) / output_split(op, shard);
}

double input_split(const Operator& op, const Shard& shard) {
  const double ranks = of_experts(op) ? shard.etp : shard.tp;
  return op.split == TensorSplit::row || op.split == TensorSplit::heads ? ranks : 1;
}

AttentionShape local_attention(const AttentionShape& shape, const Shard& shard) {
  AttentionShape own = shape;
  own.heads /= shard.tp;
  own.kv_heads /= shard.tp;
  return own;
}

int local_seq_len(const Shard& shard) {
  return shard.seq_len / std::max(1, shard.cp);
}

ContextPart context_part(int seq_len, int cp, int cp_rank) {
  const int length = seq_len / (2 * cp);
  return {{cp_rank * length, (2 * cp - 1 - cp_rank) * length}, length};
}

int local_experts(int experts, const Shard& shard) {
  return std::max(1, experts / shard.ep);
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

}  // namespace orrery
