// What a plan's checkpoint holds, and how long the cluster's storage takes for it.
#pragma once

#include "program/plan.h"

namespace orrery::planner {

// Of one parameter: its fp32 (master) weight, the optimizer's fp32 states, and the weight once more in the
// precision that kernels read where the framework stores it beside the master. Orrery's executor and
// frameworks that have it only while it is gathered (RuntimeProfile::gathered_weights_only) do not.
double checkpoint_bytes_per_parameter(const Plan& plan);

struct CheckpointCost {
  double bytes = 0;               // of the whole, each shard once
  double write_s = 0;             // of the node that writes longest; 0 where its storage is not stated
  double read_s = 0;              // of the same bytes
  double device_bytes = 0;        // of the device that holds most of it
  double device_bytes_per_s = 0;  // from that device into its host's memory; 0: not stated
};

// Each distinct shard is written once: under ZeRO by all ranks (of the first shard group), without by the
// first data-parallel replica, as exec/state/checkpoint.h does. A node's ranks share its storage. A stage's
// parameters lie evenly on the ranks that write it, experts like the rest. The storage that the cluster
// states of a node is taken to be reachable from the node that replaces it.
CheckpointCost checkpoint_cost(const Plan& plan);

}  // namespace orrery::planner
