// Device memory of the communicators that a plan's ranks open: a library's buffers for each channel and
// neighbour on the node (NCCL's src/transport/p2p.cc; topologies/links says how many and how large). What
// they hold for the network is small beside that, and is left out.
#pragma once

#include "program/plan.h"

namespace orrery::planner {

// Of rank 0; 0 where the runtime does not say which communicators there are, or the library what one takes.
// O(devices of a node).
double communicator_bytes(const Plan& plan);

}  // namespace orrery::planner
