#pragma once

#include <string>

#include "exec/communicator.h"

namespace orrery::exec::test {

// Runs every plan of as many ranks as `world` has and compares it with the serial run. Returns the number of
// plans that differ; rank 0 prints.
// `which`: "equivalence" (all), "smoke" (the first three) or "random" (drawn ones).
int check_equivalence(Communicator& world, const std::string& which);

// Every plan of as many ranks that GPUs execute, on the first GPU (shared by the ranks, messages staged
// through the host) and on processors. Returns the number of plans that differ; rank 0 prints. Defined where
// ORRERY_TEST_GPU is.
int check_cuda(Communicator& world, int every);

// Every collective against its definition. Throws on a difference.
void check_communicator(Communicator& world);

}  // namespace orrery::exec::test
