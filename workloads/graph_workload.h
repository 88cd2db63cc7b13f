// Layer graphs that are no transformers: checks, blocks and file form.
#pragma once

#include "workloads/workload.h"

namespace orrery {
class FieldCheck;
}
namespace orrery::proto {
class Graph;
}

namespace orrery::internal {

// Fills operators and layers. Throws UserError(file, line, …) on unknown kinds, impossible figures, inputs
// that do not exist, and cycles. Blocks that the file does not number are found by assign_layers.
void read_graph(const proto::Graph& message, const FieldCheck& at, Workload* workload);
void write_graph(const Workload& workload, proto::Graph* message);

// Numbers the blocks of `operators` (in topological order): a new one begins before a product where a single
// tensor crosses and the block so far has a product too. Gives their number.
int assign_layers(std::vector<Operator>* operators);
// For pipelines: a block with more than kHeavyBlock of all FLOPs leaves them nothing to balance with, and is
// cut before each of its products, whatever crosses there. Gives the number of blocks.
constexpr double kHeavyBlock = 1.0 / 8;
int refine_layers(std::vector<Operator>* operators);

}  // namespace orrery::internal
