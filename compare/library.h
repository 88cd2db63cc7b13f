// All-reduces over a library other than the cluster's own.
#pragma once

#include <optional>

#include "compare/strategy.h"
#include "cost/collective_cost.h"

namespace orrery::comparison {

// Seconds of an all-reduce of `bytes` by the group of `shape`, on an idle network; `algorithm`: as the
// library chooses where there is none. MPI and Gloo, of devices with a memory of their own, copy what is
// summed into the host's memory and back over the devices' links. All but the own library rest on typical
// figures of such software (topologies/communication_defaults.h), not on measurements. Throws UserError where
// the library does not run on the cluster's devices, or has no such algorithm.
double all_reduce_s(Library library, double bytes, const GroupShape& shape, const Cluster& cluster,
                    const std::optional<Algorithm>& algorithm);

// Throws UserError where the library does not run on the cluster's devices.
void check_library(Library library, const Cluster& cluster);

// A pair of Gloo's ranks has one TCP connection. Assumed: 40 Gb/s.
constexpr double kGlooConnectionBytesPerS = 5e9;

}  // namespace orrery::comparison
