#pragma once

#include "exec/communicator.h"

namespace orrery::exec::test {

// Runs every plan of as many ranks as `world` has and compares it with the serial run. Returns the number of
// plans that differ; rank 0 prints.
int check_equivalence(Communicator& world, bool smoke);

// Every collective against its definition. Throws on a difference.
void check_communicator(Communicator& world);

}  // namespace orrery::exec::test
