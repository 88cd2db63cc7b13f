// Which links payloads will load, gathered while the largest rate that each pattern must reach is not known
// yet: on an idle network a flow takes the time that its cost model says.
#pragma once

#include <map>
#include <vector>

#include "sim/network/flow_system.h"
#include "sim/network/packet_load.h"
#include "sim/network/route_table.h"
#include "topologies/network.h"

namespace orrery::sim {

// Of some transfers.
struct TransferLoads {
  std::vector<LinkWeight> links;
  PacketEnds ends;
};

struct PatternRequest {
  TransferLoads own;              // one instance
  TransferLoads all;              // of all ranks that are stood for; without links: own
  std::vector<LinkWeight> fixed;  // storage: these links, and no transfer
  int queue = kNoQueue;
  double most_bytes_per_s = 0;  // the largest rate bound of its flows
};

class FlowRequests {
 public:
  // Keeps references; adds links, patterns and flows to `flows`.
  FlowRequests(const Network& network, FlowSystem& flows);

  // A transfer between two devices, with its share of a flow's bytes; what acknowledges it goes the other
  // way.
  void add_edge(int source_device, int destination_device, double share);
  // Of the edges since the last time.
  TransferLoads take();

  int add(PatternRequest request);
  // That the next one gets.
  int next() const { return static_cast<int>(requests_.size()); }
  // A flow of the request may be as fast.
  void raise_bound(int request, double bytes_per_s);

  // After the last request and bound.
  void make_patterns();
  int flow(int request, double bound_bytes_per_s);
  // Index in take_packets() of what such a flow takes of the simulated nodes' cores (PacketLoad::taken_by).
  int packets(int request, double bound_bytes_per_s, const std::map<int, int>& nodes);
  std::vector<std::vector<TakenCores>> take_packets() { return std::move(packet_load_.taken); }

 private:
  int pattern_of(PatternRequest& request);

  FlowSystem& flows_;
  double acknowledged_ = 0;  // of a byte between nodes, the other way
  RouteTable routes_;
  LoadSum loads_;
  PacketLoad packet_load_;
  std::vector<PatternRequest> requests_;
  std::vector<int> patterns_;  // by request
};

}  // namespace orrery::sim
