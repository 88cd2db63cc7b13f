// The links of a Cluster and the route between any two devices, computed on demand: nothing is materialised,
// so a cluster of 100,000 devices costs nothing until a route is asked for. The one truth about routing: the
// collective cost model, the simulator's platform and the exported SimGrid file all read it.
//
//        device d --nvlink--> [NVSwitch | PCIe bridge | mesh]      inside a node
//        device d --pcie--> port p --nic--> leaf --up--> spine ...  between nodes
//
// Every link is two directed capacities; a LinkId names one direction.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "topologies/cluster.h"

namespace orrery {

using LinkId = std::int64_t;

enum class LinkKind : std::uint8_t {
  device_port,  // device <-> NVSwitch or memory (one device's NVLinks together)
  mesh,         // a bundle of NVLinks between two devices
  pcie,         // device <-> PCIe bridge / NIC
  bridge,       // CPU interconnect between bridges
  nic,          // port <-> leaf switch
  leaf_uplink,  // leaf <-> spine, aggregated
  torus,
  dragonfly_local,
  dragonfly_global,
  memory,  // shared-memory transport of one host, shared by its ranks
};

struct Link {
  LinkId id = 0;
  LinkKind kind = LinkKind::device_port;
  double bandwidth_bytes_per_s = 0;  // nominal, this direction, overrides applied; 0: dead
  double latency_s = 0;
};

// The best link class that two devices communicate over: what a collective's algorithm is chosen by.
enum class PathClass : std::uint8_t { self, shared_memory, nvlink, pcie, network };

struct Route {
  std::vector<Link> links;
  double latency_s = 0;              // sum over links and switches
  double bandwidth_bytes_per_s = 0;  // of the narrowest link
  PathClass path = PathClass::self;
};

class Network {
 public:
  explicit Network(const Cluster& cluster);  // keeps a reference

  const Cluster& cluster() const { return *cluster_; }
  // Deterministic: fat trees route by destination (D-mod-k), tori by dimension order, dragonflies minimally.
  // Throws NoAnswer naming the devices when every port between them is dead.
  Route route(int source_device, int destination_device) const;
  PathClass path_class(int a, int b) const;
  std::string name_of(LinkId id) const;  // "node3.nic0.up"

 private:
  const Cluster* cluster_;
};

}  // namespace orrery
