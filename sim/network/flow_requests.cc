#include "sim/network/flow_requests.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace orrery::sim {
namespace {

// What goes the other way for each byte, from what long messages reach with and without as many the other
// way; in fiftieths, for SimGrid's weights are integers.
double acknowledged_share(const CommunicationProfile& profile) {
  if (profile.library != CommunicationLibrary::mpi || profile.network_exchange_efficiency <= 0) return 0;
  const double share = profile.network_efficiency / profile.network_exchange_efficiency - 1;
  return std::max(0.0, std::round(50 * share) / 50);
}

}  // namespace

FlowRequests::FlowRequests(const Network& network, FlowSystem& flows)
    : flows_(flows),
      acknowledged_(acknowledged_share(network.cluster().communication)),
      routes_(network, flows),
      packet_load_(network.cluster()) {}

void FlowRequests::add_edge(int source_device, int destination_device, double share) {
  packet_load_.add(source_device, destination_device, share);
  for (const int link : routes_.links(source_device, destination_device)) loads_.add(link, share);
  if (acknowledged_ == 0) return;
  for (const int link : routes_.links(destination_device, source_device))
    if (!routes_.inside_node(link)) loads_.add(link, acknowledged_ * share);
}

TransferLoads FlowRequests::take() {
  return {loads_.take(), packet_load_.take()};
}

int FlowRequests::add(PatternRequest request) {
  requests_.push_back(std::move(request));
  return next() - 1;
}

void FlowRequests::raise_bound(int request, double bytes_per_s) {
  double& most = requests_[static_cast<std::size_t>(request)].most_bytes_per_s;
  most = std::max(most, bytes_per_s);
}

// Where the cost model knows of links inside a node that the routes do not have (a mesh's disjoint rings,
// copies through shared memory), the routes' links count less. Ports and fabric always count in full: what a
// bad placement costs there is the simulator's to find.
int FlowRequests::pattern_of(PatternRequest& request) {
  if (!request.fixed.empty()) return flows_.add_pattern(std::move(request.fixed), request.queue);
  double relief = 1;
  for (const LinkWeight& load : request.own.links) {
    const double alone = flows_.capacity(load.link) / load.weight;
    if (routes_.inside_node(load.link)) relief = std::min(relief, alone / request.most_bytes_per_s);
  }
  if (request.all.links.empty()) request.all = std::move(request.own);
  for (LinkWeight& load : request.all.links)
    if (routes_.inside_node(load.link)) load.weight *= relief;
  return flows_.add_pattern(std::move(request.all.links), request.queue);
}

void FlowRequests::make_patterns() {
  patterns_.reserve(requests_.size());
  for (PatternRequest& request : requests_) patterns_.push_back(pattern_of(request));
}

int FlowRequests::flow(int request, double bound_bytes_per_s) {
  return flows_.add_flow(patterns_[static_cast<std::size_t>(request)], bound_bytes_per_s);
}

int FlowRequests::packets(int request, double bound_bytes_per_s, const std::map<int, int>& nodes) {
  return packet_load_.taken_by(requests_[static_cast<std::size_t>(request)].all.ends, bound_bytes_per_s,
                               nodes);
}

}  // namespace orrery::sim
