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

// ---- Of tensors (program/tensor_shard.h) ----
namespace orrery {
namespace {

std::int64_t rounded_up(std::int64_t size, std::int64_t ranks) {
  return (size + ranks - 1) / ranks;
}

// Rows of the split dimension that a rank holds of each fused part.
std::int64_t rows_of_part(const ParameterTensor& tensor, int ranks) {
  const std::int64_t whole = tensor.shape[static_cast<std::size_t>(tensor.split_dim)];
  return rounded_up(whole / std::max(1, tensor.split_parts), ranks);
}

// Of the ranks that cut the split dimension.
int ranks_of(const ParameterTensor& tensor, const ShardPlace& place) {
  return tensor.expert ? place.etp : place.tp;
}

std::int64_t local_size(const ParameterTensor& tensor, std::size_t dimension, const ShardPlace& place) {
  if (tensor.expert && dimension == 0) return rounded_up(tensor.shape[0], place.ep);
  if (static_cast<int>(dimension) != tensor.split_dim) return tensor.shape[dimension];
  return std::max(1, tensor.split_parts) * rows_of_part(tensor, ranks_of(tensor, place));
}

}  // namespace

ShardPlace shard_place(const Choices& choices, const Coordinates& at) {
  return {choices.tp, at.tp, choices.ep, at.ep, choices.etp, at.tp % choices.etp};
}

std::vector<std::int64_t> local_shape(const ParameterTensor& tensor, const ShardPlace& place) {
  std::vector<std::int64_t> shape;
  for (std::size_t d = 0; d < tensor.shape.size(); ++d) shape.push_back(local_size(tensor, d, place));
  return shape;
}

std::int64_t local_elements(const ParameterTensor& tensor, const ShardPlace& place) {
  std::int64_t elements = 1;
  for (std::size_t d = 0; d < tensor.shape.size(); ++d) elements *= local_size(tensor, d, place);
  return elements;
}

std::vector<Run> runs_of(const ParameterTensor& tensor, const ShardPlace& place) {
  const int ranks = ranks_of(tensor, place);
  const int rank = tensor.expert ? place.etp_rank : place.tp_rank;
  // The part of the stack: all of what is no stack.
  const std::int64_t elements = tensor.elements() / (tensor.expert ? place.ep : 1);
  const std::int64_t first = tensor.expert ? elements * place.ep_rank : 0;
  if (tensor.split_dim < 0 || ranks == 1) return {{0, first, elements}};
  const auto split = static_cast<std::size_t>(tensor.split_dim);
  std::int64_t inner = 1;
  for (std::size_t d = split + 1; d < tensor.shape.size(); ++d) inner *= tensor.shape[d];
  const std::int64_t outer = elements / (tensor.shape[split] * inner);
  const std::int64_t parts = tensor.split_parts;
  const std::int64_t whole = tensor.shape[split] / parts;
  const std::int64_t rows = rows_of_part(tensor, ranks);
  const std::int64_t begin = std::min(whole, rows * rank);
  const std::int64_t held = std::min(whole, begin + rows) - begin;
  std::vector<Run> runs;
  if (held == 0) return runs;
  for (std::int64_t o = 0; o < outer; ++o)
    for (std::int64_t p = 0; p < parts; ++p)
      runs.push_back(
          {(o * parts + p) * rows * inner, first + ((o * parts + p) * whole + begin) * inner, held * inner});
  return runs;
}

}  // namespace orrery
