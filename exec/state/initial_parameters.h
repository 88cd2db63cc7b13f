// That all replicas begin with the same parameters.
#pragma once

#include "exec/communicators/communicator.h"
#include "exec/device/device.h"
#include "exec/state/parameters.h"
#include "program/program.h"

namespace orrery::exec {

// Every rank draws its initial parameters itself, by tensor and element; the mathematics of unlike processors
// may differ in a last bit. Where a replica's do, it gets the first replica's. Collective over all ranks,
// which `control` joins. Returns how many buckets this rank was sent.
int agree_on_parameters(const Program& program, Parameters& parameters, Device& device,
                        Communicator& control);

}  // namespace orrery::exec
