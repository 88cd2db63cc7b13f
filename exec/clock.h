// One time axis for all ranks.
#pragma once

#include <vector>

#include "exec/communicator.h"

namespace orrery::exec {

// This process's steady clock, in seconds since its epoch.
double steady_seconds();

// Seconds to add to this rank's steady clock to get rank 0's, estimated by ping-pong (half the shortest round
// trip); 0 where the clocks agree within that error, as on one machine. Collective.
double clock_offset(Communicator& world);

}  // namespace orrery::exec
