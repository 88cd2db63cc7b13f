// Which elements of a whole tensor one tensor-parallel rank holds. A pure function of shape and rank: used to
// initialise, to digest and to store tensors independently of the plan.
#pragma once

#include <cstdint>
#include <vector>

#include "workloads/workload.h"

namespace orrery::exec {

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

// In increasing order of `local`. Padding (of a vocabulary that does not divide) belongs to no run.
std::vector<Run> runs_of(const ParameterTensor& tensor, const ShardPlace& place);

// The shape of the part, padding included.
std::vector<std::int64_t> local_shape(const ParameterTensor& tensor, const ShardPlace& place);

}  // namespace orrery::exec
