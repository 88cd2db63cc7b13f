// One time axis for all ranks, and waiting without disturbing who measures.
#pragma once

#include <chrono>
#include <vector>

#include "exec/communicators/communicator.h"

namespace orrery::exec {

// This process's steady clock, in seconds since its epoch.
double steady_seconds();

// Seconds to add to this rank's steady clock to get rank 0's, estimated by ping-pong (half the shortest round
// trip); 0 where the clocks agree within that error, as on one machine. Collective.
double clock_offset(Communicator& world);

// A barrier in which those who wait sleep, `nap` at a time: they may share cores with those who measure.
void sleeping_barrier(Communicator& world, std::chrono::microseconds nap = std::chrono::milliseconds(1));

}  // namespace orrery::exec
