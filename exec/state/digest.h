// A fingerprint of a model's parameters that does not depend on how they are sharded: each tensor's norm and
// eight projections onto fixed random signs.
#pragma once

#include <array>
#include <map>
#include <string>
#include <vector>

#include "exec/communicators/communicator.h"
#include "exec/device/device.h"
#include "exec/state/parameters.h"
#include "exec/state/projections.h"

namespace orrery::exec {

struct TensorDigest {
  double norm = 0;
  std::array<double, kProjections> projections{};
};

// Collective over `world`; the result stands on rank 0 (empty elsewhere), by tensor name. Every element of
// every tensor is counted once, whatever the plan.
std::map<std::string, TensorDigest> digest_parameters(const Plan& plan, const Parameters& parameters,
                                                      Device& device, Communicator& world);

}  // namespace orrery::exec
