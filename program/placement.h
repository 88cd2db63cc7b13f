// Which rank has which coordinates, which ranks form which group, and which device a rank runs on.
#pragma once

#include <vector>

#include "program/plan.h"
#include "program/program.h"

namespace orrery {

// Mixed radix in Choices::order, innermost first. ep is a digit inside dp*cp, with sequence parallelism
// inside tp/etp*dp*cp, and does not multiply the world: of the position among those ranks (tp/etp fastest,
// then cp and dp, the one that stands first in the order varying faster) it is the fastest digit, or the
// slowest where ep stands behind cp and dp in the order. etp is the fastest digit of tp. So does
// Megatron-Core place experts.
Coordinates coordinates_of(const Plan& plan, int rank);
int rank_of(const Plan& plan, const Coordinates& at);

// Members in increasing order of the varying coordinate.
Group tensor_group(const Plan& plan, int rank);
Group data_group(const Plan& plan, int rank);  // dp x cp: over which dense gradients are reduced
Group expert_group(const Plan& plan, int rank);
// etp neighbours of the tensor group: they share each of their experts, and nobody else of the tensor group
// sees these tokens there.
Group expert_tensor_group(const Plan& plan, int rank);
// Ranks that parts of an expert may be spread over: dp*cp, with sequence parallelism tp/etp*dp*cp.
int expert_ranks(const Choices& choices);
// Over which experts' gradients are reduced: of the same ranks those with the same experts.
Group expert_data_group(const Plan& plan, int rank);
Group context_group(const Plan& plan, int rank);
Group shard_group(const Plan& plan, int rank);      // over which states are sharded
Group replicate_group(const Plan& plan, int rank);  // across shard groups
Group embedding_group(const Plan& plan, int rank);  // first and last stage, where they share a tensor

// Elements [begin, begin + elements) of a bucket, which parameter server `server` of `servers` keeps: nearly
// equal parts, as ps-lite and MXNet cut arrays over all servers.
struct ServerSlice {
  std::int64_t begin = 0;
  std::int64_t elements = 0;
};
ServerSlice server_slice(std::int64_t elements, int servers, int server);

// Device of a rank: ranks fill devices in order; ranks beyond the devices of a shared-core node share them
// round robin.
int device_of(const Plan& plan, int rank);

}  // namespace orrery
