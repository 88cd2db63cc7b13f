// What one operator costs on one rank, before any device is known: products, FLOPs, bytes, kernels.
#pragma once

#include <vector>

#include "program/plan.h"
#include "program/program.h"
#include "workloads/workload.h"

namespace orrery {

// The part of an operator that one rank works on.
struct Shard {
  double rows = 0;     // tokens (or samples) of the micro-batch on this rank, before sequence parallelism
  double samples = 0;  // sequences in the micro-batch
  int seq_len = 0;     // of the whole sequence; context parallelism divides `rows`, not this
  int tp = 1;
  int cp = 1;
  int ep = 1;
  int etp = 1;
  bool sequence_parallel = false;
  DType precision = DType::bf16;
  bool fused_attention = true;
  double capacity_factor = 0;
};

struct Product {  // m x k times k x n, `count` times
  double m = 0, n = 0, k = 0;
  double count = 1;
};

struct OperatorWork {
  std::vector<Product> products;
  double attention_flops = 0;  // of the attention core, for AttentionModel
  double vector_bytes = 0;     // of memory-bound arithmetic, for VectorModel
  double flops = 0;            // all FLOPs together
  double bytes = 0;            // all bytes together, products' operands included
  double kernels = 0;          // launches
};

Shard shard_of(const Plan& plan);
OperatorWork operator_work(const Operator& op, ComputeKind kind, const Shard& shard,
                           const RuntimeProfile& runtime);

// Bytes of the operator's output on one rank, and of what it keeps for the backward pass (Korthikanti et al.,
// arXiv 2205.05198, section 4), for one micro-batch.
double output_bytes(const Operator& op, const Shard& shard);
double saved_bytes(const Operator& op, const Shard& shard, const RuntimeProfile& runtime);
// Elements of the operator's parameters that one rank holds (before ZeRO).
std::int64_t local_parameters(const Operator& op, const Shard& shard);

}  // namespace orrery
