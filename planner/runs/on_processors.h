// A plan as the executor trains it on one machine's processors, whatever devices it was made for. `machine`:
// one node of processors (localhost), which gets as many ranks as the plan has.
#pragma once

#include "program/plan.h"

namespace orrery::planner {

// Of all ranks together.
struct ProcessorMemory {
  double state_bytes = 0;  // weights, gradients, the optimizer's states
  double other_bytes = 0;  // activations, buffers, libraries
  double bytes() const { return state_bytes + other_bytes; }
};
ProcessorMemory memory_on_processors(const Plan& plan, const Cluster& machine);

// In closed form, all ranks on the machine's cores.
double step_seconds_on_processors(const Plan& plan, const Cluster& machine);

}  // namespace orrery::planner
