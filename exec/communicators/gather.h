// Bytes of every rank on rank 0.
#pragma once

#include <string>
#include <vector>

#include "exec/communicators/communicator.h"

namespace orrery::exec {

// Collective; `bytes` may differ in length between ranks and lie in host memory. On rank 0: by rank;
// elsewhere empty.
std::vector<std::string> gather_to_root(Communicator& world, const std::string& bytes);

// Element by element the sum over the ranks, in their order; on rank 0, elsewhere zeros. Collective; as many
// values on every rank.
std::vector<double> sum_at_root(Communicator& world, const std::vector<double>& values);

// Rank 0's bytes on every rank.
std::string broadcast_from_root(Communicator& world, std::string bytes);

}  // namespace orrery::exec
