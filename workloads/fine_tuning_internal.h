// Freezing of weights and adapters beside them, for transformer_operators.
#pragma once

#include <vector>

#include "workloads/workload.h"

namespace orrery::internal {

// Moves what model.fine_tuning leaves as it is from `parameters` to `frozen`, adds adapters, and marks where
// gradients are wanted.
void apply_fine_tuning(const Transformer& model, std::vector<Operator>* operators);

}  // namespace orrery::internal
