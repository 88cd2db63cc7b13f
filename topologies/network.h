// The links of a Cluster and the route between any two devices, computed on demand: nothing is materialised,
// so a cluster of 100,000 devices costs nothing until a route is asked for. The one truth about routing: the
// collective cost model, the simulator's platform and the exported SimGrid file all read it.
//
//        device d --device_port--> NVSwitch --device_port--> device e     NVSwitch node
//        device d --mesh--> device e, or --mesh--> via --mesh--> e         NVLink mesh; through the host when
//                                                                          no two links join them
//        device d --pcie--> bridge [--bridge--> interconnect --bridge--> bridge] --pcie--> device e
//        rank d --device_port--> memory --device_port--> rank e            shared memory
//        device d --pcie--> port p --nic--> leaf [--leaf_uplink--> spine …] between nodes
//
// Every link is two directed capacities; a LinkId names one direction.
//
// Between nodes:
// - Star: one switch; where it has a capacity of its own (a backbone), that is one more link, shared both
// ways.
// - A device uses the port of its affinity, or the next live port of its node (cyclically) when that is dead.
// - The uplinks of a leaf count as one aggregated capacity: nodes_per_leaf times a node's ports, over the
//   oversubscription. Routing by destination (D-mod-k) spreads the destinations of a leaf over its uplinks
//   evenly, and this is what is left of it once they are added up.
// - Rail fat tree: port i of every node of a pod hangs on leaf i of the pod. Traffic from port i to port j !=
// i
//   first crosses NVLink to a device of the source node that uses port j (what NCCL calls PXN), so that it
//   stays on rail j; where the node has no NVLink path or no live port j, it crosses the spine.
// - Torus: dimension by dimension, the shorter way round, upwards on ties. Row-major, last dimension fastest.
// A
//   switch is counted for each hop: the nodes' own are part of their ports.
// - Dragonfly: routers of a group are joined all to all; one global link joins two groups, at router
//   ((other - own - 1) mod groups) mod routers; routes take at most local, global, local.
//
// Latency: intra.latency_s is that of a whole transfer between two devices of a node (a mesh counts it for
// each hop, a crossing of bridges twice), nic.latency_s that of one port crossed, fabric.switch_latency_s
// that of one switch.
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
  bridge,       // PCIe bridge <-> CPU interconnect
  nic,          // port <-> leaf switch
  leaf_uplink,  // leaf <-> spine, aggregated; of a star: its backbone
  torus,
  dragonfly_local,
  dragonfly_global,
  memory,  // shared-memory transport of one host, shared by its ranks; one capacity, not two
};

struct Link {
  LinkId id = 0;
  LinkKind kind = LinkKind::device_port;
  double bandwidth_bytes_per_s = 0;  // nominal, this direction, overrides applied; 0: dead
  double latency_s = 0;
};

// The vertices that a link joins, in its direction: "node3.gpu1", "node3.nvswitch", "pod0.leaf2", "spine".
struct LinkEnds {
  std::string from;
  std::string to;
};

// The best link class that two devices communicate over: what a collective's algorithm is chosen by.
enum class PathClass : std::uint8_t { self, shared_memory, nvlink, pcie, network };

struct Route {
  std::vector<Link> links;
  int switches = 0;      // of the fabric that are crossed
  double latency_s = 0;  // sum over links and switches
  // Of the narrowest link; of a device to itself: what a copy in its own memory reaches.
  double bandwidth_bytes_per_s = 0;
  PathClass path = PathClass::self;
};

class Network {
 public:
  explicit Network(const Cluster& cluster);  // keeps a reference

  const Cluster& cluster() const { return *cluster_; }
  // O(hops). Deterministic. Throws NoAnswer naming the devices when every port of one of their nodes is dead.
  Route route(int source_device, int destination_device) const;
  PathClass path_class(int a, int b) const;
  // The port that a device sends and receives through. Throws NoAnswer when all of its node are dead.
  int port_of(int device) const;

  Link link(LinkId id) const;
  std::string name_of(LinkId id) const;  // "node3.nic0.up"
  LinkEnds ends_of(LinkId id) const;
  // Every link of the cluster, both directions, in ascending order of id. O(links).
  std::vector<LinkId> all_links() const;

 private:
  struct Path;
  struct End;  // one device of a route

  End end_at(int device) const;
  void route_inside(const End& from, const End& to, Path& path) const;
  void mesh_hops(const End& from, const End& to, Path& path) const;
  void to_port(const End& end, bool up, Path& path) const;
  void across_fabric(const End& from, const End& to, Path& path) const;
  bool move_to_rail(End& from, int port, Path& path) const;
  void across_torus(int from, int to, Path& path) const;
  void across_dragonfly(int from, int to, Path& path) const;
  int live_port(int node, const NodeType& type, int wanted) const;
  double port_speed(int node, int port) const;
  double uplink_bandwidth(int leaf, int rail) const;
  double link_bandwidth(LinkId id) const;
  double link_latency(LinkId id) const;

  struct PortSpeed {
    std::int64_t key;  // node and port
    double speed;
  };
  const Cluster* cluster_;
  std::vector<PortSpeed> port_speeds_;  // sorted by key
};

}  // namespace orrery
