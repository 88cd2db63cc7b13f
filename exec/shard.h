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

// In increasing order of `local`. Padding (of a vocabulary that does not divide) belongs to no run.
std::vector<Run> runs_of(const ParameterTensor& tensor, int tp, int tp_rank);

// The shape of the part, padding included.
std::vector<std::int64_t> local_shape(const ParameterTensor& tensor, int tp);

}  // namespace orrery::exec
