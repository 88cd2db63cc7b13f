// A whole Cluster as a SimGrid platform, in SimGrid's own zones: every device a host, every link of
// topologies/network.h a link. The simulator proper does not use it (it builds only what its flows load, see
// sim/network/platform.h); it is there for whoever wants SimGrid's own activities on one of our machines, and
// as an independent check of our routes and of our sharing.
//
//   node                 StarZone of its devices (NVSwitch, shared memory), FullZone (NVLink mesh, PCIe), and
//                        a router "nodeN.gateway"; a device's way to the gateway crosses its PCIe link, its
//                        bridges and the port of its affinity, the next live one when that is dead
//   star                 StarZone of the nodes; the switch is one link that all routes cross
//   fat tree             FatTreeZone, two levels: nodes_per_leaf nodes below a leaf, one link above it that
//                        has the rate of all uplinks, hence the oversubscription
//   torus                TorusZone, its dimensions in our order
//   dragonfly            DragonflyZone, one chassis a group, routers renumbered so that global links leave
//                        from the same routers as ours (SimGrid's group i reaches group j from its router j)
//   rail fat tree        FullZone of all devices: which rail a transfer takes depends on both devices, which
//                        no route between two zones can say
//
// Latencies are the true ones, as SimGrid has them: it shares a link by round-trip time, so transfers with
// routes of different latency do not share equally (the simulator's do). A fat tree and a dragonfly zone
// count one link more than there are switches on a route; what that adds is taken off the latency of the
// ports, half at each end. Where ports have less than half a switch's latency, routes are longer by what is
// missing.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "topologies/cluster.h"

namespace orrery::sim {

struct ZoneTransfer {
  int source = 0;  // devices
  int destination = 0;
  double bytes = 0;  // whole; at least 1 is sent
};

struct ZoneRoute {
  std::vector<std::string> links;
  double latency_s = 0;
  double bandwidth_bytes_per_s = 0;  // of the narrowest link
};

// One a process (SimGrid's engine is): use it inside run_isolated.
class ZonePlatform {
 public:
  // Throws UserError for what zones cannot express: leaves of different uplinks, more than kMaxFullDevices on
  // rails, a dragonfly with more groups than routers or with link rates that are not multiples of one rate;
  // NoAnswer where every port of a node is dead.
  explicit ZonePlatform(const Cluster& cluster);
  // A platform that `orrery export --to simgrid` wrote, of the same cluster.
  ZonePlatform(const Cluster& cluster, const std::string& platform_xml);
  ~ZonePlatform();
  ZonePlatform(const ZonePlatform&) = delete;
  ZonePlatform& operator=(const ZonePlatform&) = delete;

  int hosts() const;
  int links() const;
  ZoneRoute route(int source, int destination) const;
  // All start at once; the seconds at which each ends. Once.
  std::vector<double> run(const std::vector<ZoneTransfer>& transfers);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Routes between all pairs of devices are written out on rails; they go with the square.
constexpr int kMaxFullDevices = 1024;

}  // namespace orrery::sim
