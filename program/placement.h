// Which rank has which coordinates, which ranks form which group, and which device a rank runs on.
#pragma once

#include <vector>

#include "program/plan.h"
#include "program/program.h"

namespace orrery {

struct GroupRule;

// Mixed radix in Choices::order, innermost first. ep is a digit inside dp*cp, with sequence parallelism
// inside tp/etp*dp*cp, and does not multiply the world: of the position among those ranks (tp/etp fastest,
// then cp and dp, the one that stands first in the order varying faster) it is the fastest digit, or the
// slowest where ep stands behind cp and dp in the order. etp is the fastest digit of tp. So does
// Megatron-Core place experts.
Coordinates coordinates_of(const Plan& plan, int rank);
int rank_of(const Plan& plan, const Coordinates& at);

// The group of that kind that the rank is in, alone where nobody else is. Members stand in increasing order
// of the coordinate that varies.
//   tensor, context, pipeline: the ranks that differ in tp, cp, pp alone
//   data: dp x cp, over which dense gradients are reduced
//   shard, replicate: of the data group, over which states are sharded; across shard groups
//   embedding: the stages with the model's first and last part, where they share a tensor (others are alone)
//   expert: ranks with the parts of all experts; expert_data: those of the same experts, over which their
//     gradients are reduced
//   expert_tensor: etp neighbours of the tensor group, who share each of their experts: nobody else of the
//     tensor group sees these tokens there
// Forms that are added have kinds of their own (program/forms.h). This is the one place that tells kinds
// apart.
Group group_of(GroupKind kind, const Plan& plan, int rank);
std::vector<GroupRule> built_in_group_rules();

// Ranks that parts of an expert may be spread over: dp*cp, with sequence parallelism tp/etp*dp*cp.
int expert_ranks(const Choices& choices);

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
