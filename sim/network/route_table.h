// The links of the routes between devices, each route looked up once: rings and exchanges of many groups take
// the same ones.
#pragma once

#include <span>
#include <vector>

#include "sim/network/flat_index.h"
#include "sim/network/flow_system.h"
#include "topologies/network.h"

namespace orrery::sim {

class RouteTable {
 public:
  // Keeps references; adds the links that it meets to `flows`, at the capacity that transfers can use.
  RouteTable(const Network& network, FlowSystem& flows) : network_(network), flows_(flows) {}

  // Indices of links in the FlowSystem, in the order of the way; none from a device to itself. Valid until
  // the next call.
  std::span<const int> links(int source, int destination);
  bool inside_node(int link) const { return inside_[static_cast<std::size_t>(link)]; }

 private:
  void add_route(int source, int destination);

  const Network& network_;
  FlowSystem& flows_;
  FlatIndex index_;                       // of a pair of devices: its route
  std::vector<std::size_t> begin_ = {0};  // of each route in `links_`, and the end of the last
  std::vector<int> links_;
  std::vector<bool> inside_;  // by link
};

}  // namespace orrery::sim
