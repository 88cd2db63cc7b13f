// Freezing of weights and adapters beside them, for transformer_operators.
#pragma once

#include <vector>

#include "workloads/workload.h"

namespace orrery::internal {

// Moves what model.fine_tuning leaves as it is from `parameters` to `frozen`, adds adapters, and marks where
// gradients are wanted.
void apply_fine_tuning(const Transformer& model, std::vector<Operator>* operators);

// Of a general graph: what the first `layers` blocks hold, and what is tied to it, is not trained. Throws
// UserError where nothing would be.
void freeze_layers(int layers, Workload* workload);

}  // namespace orrery::internal
