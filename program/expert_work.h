// What experts compute besides their products, by the kernels that a framework runs it with.
#pragma once

#include "program/operator_work.h"

namespace orrery {

enum class ExpertKernels : std::uint8_t {
  plain,    // as those of a dense MLP
  eager,    // PyTorch's, operator by operator (RuntimeProfile::eager_experts)
  grouped,  // products of all experts in one launch; between them a kernel of its own, biases apart
  fused,    // inside the grouped products (RuntimeProfile::fused_experts)
};

// Transformer Engine's grouped layer takes gated experts in 8 bits, and computes plain SwiGLU inside its
// products; what is clamped before it is gated (GPT-OSS) has a kernel of its own between them.
ExpertKernels expert_kernels(const Shard& shard, const RuntimeProfile& runtime);

// How many times as many rows as the mean the fullest of the ranks has that share the experts, for which the
// others wait at the next all-to-all: rows go to ranks as a multinomial of equal chances. 1 for what is not
// between dispatch and combine, and where experts take a fixed number of tokens or are dealt in turn.
double fullest_rank(const Operator& op, const Shard& shard, const RuntimeProfile& runtime);

// Of the router and of what stands between dispatch and combine: what `eager` kernels move and launch beyond
// the products, and biases of experts that are added apart. Adds to `vector_bytes` and `kernels`.
void add_expert_arithmetic(const Operator& op, ComputeKind kind, const Shard& shard,
                           const RuntimeProfile& runtime, OperatorWork* work);

}  // namespace orrery
