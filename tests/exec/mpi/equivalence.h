#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "exec/communicators/communicator.h"

namespace orrery::exec::test {

// All of `world` once more, for what lies under a communicator over a device's memory.
std::unique_ptr<Communicator> beneath_device(Communicator& world);

// Runs every plan of as many ranks as `world` has and compares it with the serial run. Returns the number of
// plans that differ; rank 0 prints.
// `which`: "equivalence" (all), "smoke" (the first three), "vit" (vision transformers), "rehearsal" (those of
// a form that only tests know) or "random" (drawn ones, of which there are as many series as numbers).
// `series`: also which half of all plans is walked where time is counted (tests/support/walked.h).
int check_equivalence(Communicator& world, const std::string& which, std::uint64_t series = 0);

// Begins with parameters that differ between the ranks. Returns the number of forms that do not agree in the
// end; rank 0 prints.
int check_initial(Communicator& world);

// Adapters and frozen layers, on one rank, against the mathematics of merged weights. Returns the number of
// cases that differ; prints each.
int check_fine_tuning(Communicator& self);

// A vision transformer on one rank, against its mathematics written out. Returns the number of tensors whose
// gradient differs; prints each.
int check_patches(Communicator& self);

// Trains with asynchronous servers and holds them to what they promise. Returns the number of cases that do
// not; rank 0 prints.
int check_asynchronous(Communicator& world);

// Every collective against its definition. Throws on a difference.
void check_communicator(Communicator& world);

}  // namespace orrery::exec::test
