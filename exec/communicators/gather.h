// Bytes of every rank on rank 0.
#pragma once

#include <string>
#include <vector>

#include "exec/communicators/communicator.h"

namespace orrery::exec {

// Collective; `bytes` may differ in length between ranks and lie in host memory. On rank 0: by rank;
// elsewhere empty.
std::vector<std::string> gather_to_root(Communicator& world, const std::string& bytes);

// Rank 0's bytes on every rank.
std::string broadcast_from_root(Communicator& world, std::string bytes);

}  // namespace orrery::exec
