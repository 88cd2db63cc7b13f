// The blocks of layer graphs that are no transformers: the units of pipeline cuts and recomputation.
#pragma once

#include <vector>

#include "workloads/workload.h"

namespace orrery {

// Numbers the blocks of `operators` (in topological order): a new one begins before a product where a single
// tensor crosses and the block so far has a product too. Gives their number.
int assign_layers(std::vector<Operator>* operators);
// For pipelines: a block with more than kHeavyBlock of all FLOPs leaves them nothing to balance with, and is
// cut before each of its products, whatever crosses there. Gives the number of blocks.
constexpr double kHeavyBlock = 1.0 / 8;
int refine_layers(std::vector<Operator>* operators);

}  // namespace orrery
