// Layer graphs that are no transformers: checks and file form.
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

}  // namespace orrery::internal
