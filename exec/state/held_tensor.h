// One tensor of the model as a rank holds it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "workloads/workload.h"

namespace orrery::exec {

struct HeldTensor {
  const ParameterTensor* tensor = nullptr;
  int op = 0;
  int parameter = 0;        // index in Operator::parameters, or, where it is not trained, in Operator::frozen
  int bucket = 0;           // -1: not trained, and whole on this rank
  std::int64_t offset = 0;  // elements from the start of the bucket
  std::int64_t elements = 0;  // padding of the vocabulary included
  std::vector<std::int64_t> shape;
  bool frozen = false;
  // Under which it is initialised and reported: a tied tensor goes by the name of what it is tied to.
  const std::string& name() const { return tensor->tied_to.empty() ? tensor->name : tensor->tied_to; }
};

}  // namespace orrery::exec
