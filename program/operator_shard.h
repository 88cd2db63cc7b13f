// How much of an operator one rank holds and computes: asked by the counting of work and of bytes, by the
// lowerings, and by the executor, whose tensors have these shapes.
#pragma once

#include "program/operator_work.h"

namespace orrery {

// Figures of an operator per token over all its chosen experts stand for this many tokens' worth of rows.
double expert_load(const Shard& shard);  // capacity factor, or 1
bool of_experts(const Operator& op);     // between dispatch and combine, these included

// Whether tensor ranks that hold the tensor alike have each a part of the sum that is its gradient
// (docs/program.md, replicated_gradient): asked of every form of parallelism in use.
bool gradient_is_partial(const Operator& op, const ParameterTensor& tensor, const Shard& shard);
bool partial_over_tensor_ranks(const Operator& op, const ParameterTensor& tensor, const Shard& shard);

// Ranks of forms beyond tensor, context and expert parallelism that share the operator's rows.
double rows_split(const Operator& op, const Shard& shard);
// Rows that the operator runs on: whole where tensor parallelism splits its features, a sequence shard where
// it is replicated under sequence parallelism, that of all ranks that share an expert inside the experts.
double local_rows(const Operator& op, const Shard& shard);
// Rows that a rank has of a tensor whose rows the tensor ranks share, each having whole features: under
// sequence parallelism, and of models that are no transformers.
double shared_rows(const Shard& shard);
// Ranks that share the operator's output features, and its input features.
double output_split(const Operator& op, const Shard& shard);
double input_split(const Operator& op, const Shard& shard);
// Features of the operator's output that one rank has, and the elements of all its rows.
std::int64_t local_columns(const Operator& op, const Shard& shard);
double local_outputs(const Operator& op, const Shard& shard);
// The part of an attention that one rank computes: its heads, each whole, and how many of a sequence's
// queries.
AttentionShape local_attention(const AttentionShape& shape, const Shard& shard);
int local_seq_len(const Shard& shard);
// Positions of a sequence that a context rank holds: two runs of equal length, one of the sequence's first
// half and its mirror image, so that a causal mask leaves all ranks the same work.
struct ContextPart {
  int first[2] = {0, 0};
  int length = 0;
};
ContextPart context_part(int seq_len, int cp, int cp_rank);
// Of a layer's experts those that one rank holds, whole or its part of each.
int local_experts(int experts, const Shard& shard);
// Ranks over which sequence parallelism spreads a tensor that is whole where it is used.
double sequence_split(const Shard& shard);
// Tensor ranks whose tokens meet on each of them, for they share their experts; 1 where they have the same
// tokens anyway.
double gathered_ranks(const Shard& shard);
// Elements of a parameter on one rank. Each fused part is split by itself; what does not divide, such as a
// vocabulary, is padded.
std::int64_t local_elements(const ParameterTensor& tensor, const Shard& shard);

// Elements per row of memory-bound arithmetic, by the operator's own figure or by its kind's.
double vector_elements(const Operator& op);

}  // namespace orrery
