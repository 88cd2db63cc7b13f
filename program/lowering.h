// lower(plan, rank): the pure function from a Plan to what one rank does. One file per form of parallelism
// (lower_pipeline.cc, lower_tensor.cc, lower_data.cc, lower_zero.cc, lower_recompute.cc, …), composed here.
#pragma once

#include "program/plan.h"
#include "program/program.h"

namespace orrery {

// Deterministic and free of communication. `plan` must have passed check_plan. O(instructions).
Program lower(const Plan& plan, int rank);

// An independent checker of Programs: every send has its receive (peer, tag, bytes), all members of a group
// issue its collectives in the same order with the same kind and bytes, dependencies point backwards, no
// deadlock under the stream semantics. Throws InternalError naming rank and instruction.
void verify_programs(const std::vector<Program>& programs);

}  // namespace orrery
