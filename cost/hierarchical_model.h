// Libraries whose collectives go in stages: inside the nodes (over all links there), between them (each
// device with its likes), and inside again. XLA's over TPU slices, AWS Neuron's, Huawei's and Gaudi's HCCL,
// oneCCL, and whatever is not known better: latency of the steps and bytes over the rates, with the constants
// of topologies/links.
#pragma once

#include "cost/collective_cost.h"

namespace orrery {

// `forced`: ring, pairwise or direct alone, by the kind. Throws UserError otherwise.
CollectivePlan hierarchical_collective(CollectiveKind kind, double bytes, const GroupShape& shape,
                                       const Cluster& cluster, const Algorithm* forced);
CollectivePlan hierarchical_transfer(double bytes, const GroupShape& shape, const Cluster& cluster);

}  // namespace orrery
