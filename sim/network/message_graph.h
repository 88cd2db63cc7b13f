// A collective step by step: the reference that its flow is tested against.
#pragma once

#include <vector>

#include "cost/collective_cost.h"

namespace orrery::sim {

struct MessageNode {
  int source = 0;  // device
  int destination = 0;
  double share = 0;          // of the collective's bytes
  double latency_share = 0;  // of the collective's latency
  double rate_share = 1;     // of the algorithm bandwidth: bytes/s of this message on an idle network
  std::vector<int> next;
};

// Rings go round in 2(n-1) or n-1 steps, recursive doubling in log2 n rounds, each message after what its
// sender received the step before and after its own last send. What pipelines its chunks (trees, chains,
// NVLS) or starts at once (all-to-all, gather, scatter) has no such steps: all its edges go at once.
std::vector<MessageNode> message_graph(CollectiveKind kind, const CollectivePlan& plan, int root,
                                       const std::vector<int>& devices, const Cluster& cluster);

}  // namespace orrery::sim
