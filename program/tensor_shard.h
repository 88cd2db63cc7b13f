// Which elements of a whole parameter tensor one rank holds. A pure function of shape and place: what plans
// count, what the executor initialises, digests and stores.
#pragma once

#include <cstdint>
#include <vector>

#include "program/plan.h"
#include "program/program.h"
#include "workloads/workload.h"

namespace orrery {

// Elements [local, local + count) of the part are elements [global, global + count) of the whole.
struct Run {
  std::int64_t local = 0;
  std::int64_t global = 0;
  std::int64_t count = 0;
};

// A rank's place among those that share a tensor: tensor-parallel ranks cut its split dimension; of a stack
// of experts expert ranks cut the stack and those that share an expert its split dimension.
struct ShardPlace {
  int tp = 1;
  int tp_rank = 0;
  int ep = 1;
  int ep_rank = 0;
  int etp = 1;
  int etp_rank = 0;
};
ShardPlace shard_place(const Choices& choices, const Coordinates& at);

// The shape of the part, and its elements. Each fused part is split by itself; what does not divide, such as
// a vocabulary, is padded.
std::vector<std::int64_t> local_shape(const ParameterTensor& tensor, const ShardPlace& place);
std::int64_t local_elements(const ParameterTensor& tensor, const ShardPlace& place);

// In increasing order of `local`. Padding belongs to no run.
std::vector<Run> runs_of(const ParameterTensor& tensor, const ShardPlace& place);
// What of these runs lies at local elements [begin, end).
std::vector<Run> runs_within(const std::vector<Run>& runs, std::int64_t begin, std::int64_t end);

}  // namespace orrery
