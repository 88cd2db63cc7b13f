// lower(plan, rank): the pure function from a Plan to what one rank does. One file per form of parallelism
// (pipeline.cc, tensor.cc, data.cc, zero.cc, recompute.cc, …), composed here.
#pragma once

#include "program/plan.h"
#include "program/program.h"

namespace orrery {

// Deterministic and free of communication. `plan` must have passed check_plan. O(instructions).
Program lower(const Plan& plan, int rank);

// Bytes that one rank's gradients of so many elements take as they travel, compressed; 0 without compression.
double compressed_bytes(const Choices& choices, double elements);

// An independent checker of Programs, of all ranks of a world: every send has its receive (peer, tag, bytes,
// tensor), all members of a group issue its collectives in the same order with the same kind and bytes,
// dependencies point backwards, two instructions of a rank that touch the same tensor (one writing) are
// ordered by `after` and the compute stream alone, and nothing deadlocks, neither under the stream semantics
// nor when instructions are issued one by one (docs/program.md). Throws InternalError naming rank and
// instruction.
void verify_programs(const std::vector<Program>& programs);

}  // namespace orrery
