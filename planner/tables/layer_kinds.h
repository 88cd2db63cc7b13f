// Which layers of a model cost the same, so that each kind is looked at once.
#pragma once

#include <vector>

#include "workloads/workload.h"

namespace orrery::planner {

// The model in parts that a pipeline may cut between: [0] what stands before the first layer, [1 + i] layer
// i, [layers + 1] what stands after the last. Some may be empty.
struct LayerParts {
  std::vector<int> begin;  // part i is operators [begin[i], begin[i + 1])
  std::vector<int> twin;   // the first part with the same figures, or the part itself
  int count() const { return static_cast<int>(twin.size()); }
  bool layers_alike() const;  // all layers are twins
};

// Layers of a transformer are twins when their operators have equal shapes and parameters; those of a general
// graph may read from any layer before them and are each their own.
LayerParts layer_parts(const Workload& workload);

}  // namespace orrery::planner
