// What messages between nodes take of the processors at their ends: packets, copies and polls
// (CommunicationProfile::network_processor_s_per_byte).
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "topologies/cluster.h"

namespace orrery::sim {

// Of the cores of one node, while a flow moves at its rate bound.
struct TakenCores {
  int node = 0;  // in Scenario::nodes
  double cores = 0;
};

// By key of a node's cores (cores_key): transfers that begin or end there, scaled by their share
// of a flow's bytes.
using PacketEnds = std::map<int, double>;

// Nodes that stand on one machine share its cores.
inline int cores_key(const Cluster& cluster, int node) {
  return cluster.shared_cores > 0 ? 0 : node;
}

// Adds up the ends of a pattern's transfers.
class PacketLoad {
 public:
  // Keeps a reference.
  explicit PacketLoad(const Cluster& cluster) : cluster_(cluster) {}

  void add(int source_device, int destination_device, double share);
  // Of all that was added since it was last asked.
  PacketEnds take() { return std::exchange(ends_, {}); }

  // Index in `taken` of what a flow takes of the nodes (by cores_key) that are simulated; -1: nothing.
  int taken_by(const PacketEnds& ends, double bytes_per_s, const std::map<int, int>& nodes);
  std::vector<std::vector<TakenCores>> taken;

 private:
  const Cluster& cluster_;
  PacketEnds ends_;
};

}  // namespace orrery::sim
