// What messages between hosts take of their processors.
#pragma once

#include "exec/communicators/communicator.h"
#include "topologies/cluster.h"

namespace orrery::exec {

// Seconds of a core that a byte takes at either end: by how much less all cores compute while every node
// sends long messages to the next. Collective, a rank a node; the same on all ranks.
double processor_seconds_per_byte(Communicator& world, const Cluster& cluster, std::size_t message_bytes);

}  // namespace orrery::exec
