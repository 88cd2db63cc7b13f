// A group of devices as a collective's cost model sees it: how the members are spread over nodes, and what
// the links between them carry.
#pragma once

#include <string>
#include <vector>

#include "topologies/network.h"

namespace orrery {

struct GroupShape {
  int ranks = 1;
  int nodes = 1;
  int ranks_per_node = 1;      // of the fullest node
  int min_ranks_per_node = 1;  // of the emptiest node
  PathClass intra = PathClass::self;
  double intra_bandwidth_bytes_per_s = 0;  // a device's, one direction
  double intra_latency_s = 0;              // of a step; in a torus the mean one of a ring through all members
  // A member's, one direction, while all members of a node exchange with all, or all send to one. Below
  // intra_bandwidth where pairs share links: meshes, host bridges.
  double all_pairs_bandwidth_bytes_per_s = 0;
  double to_one_bandwidth_bytes_per_s = 0;
  // Of a message from each member of a node to the next, on the narrowest of their ways, where that is not
  // all that a ring of collectives has (a mesh and a torus have several); else 0.
  double neighbour_bandwidth_bytes_per_s = 0;
  double message_bandwidth_bytes_per_s() const {
    return neighbour_bandwidth_bytes_per_s > 0 ? neighbour_bandwidth_bytes_per_s
                                               : intra_bandwidth_bytes_per_s;
  }
  // PCIe: between host bridges, where members sit under several; else 0.
  double bridge_bandwidth_bytes_per_s = 0;
  int bridges = 1;        // that the members of a node sit under
  double at_bridges = 1;  // groups that cross a bridge at once: the rate above is a share of it
  double inter_bandwidth_bytes_per_s =
      0;                       // of the ports that the group's members of one node can use, together
  double inter_latency_s = 0;  // without wide_s
  int rooms = 1;               // or regions, on both sides of a wide-area way
  double wide_s = 0;           // one crossing of that
  double port_bandwidth_bytes_per_s = 0;  // of one member's own port, one direction
  // Where flows are hashed onto uplinks: the rates above are what a ring's slowest flow keeps; all pairs at
  // once keep so many times that (they are more flows, of which more leave their leaf).
  double pairs_share = 1;
  bool direct = true;  // the ports read device memory (GPUDirect), no staging in the host
  bool in_network_reduction = false;
  std::string generation;  // of the members' devices; empty where they differ
  int cores_per_node = 0;  // > 0: members are processes that share this many processor cores
};

// Shape of the group `devices` (repeats allowed: ranks that share a device). The narrowest node, port and
// uplink decide, for a ring through all members waits for them. A hybrid mesh's bandwidth is that of the
// link-disjoint rings through the members, as NCCL's topology search finds them; a torus gives the links
// along the dimensions in which the members differ. O(members); routes are asked for between neighbouring
// nodes and, in meshes and behind bridges, between the members of a node. Throws NoAnswer where a dead port
// cuts a member off.
GroupShape group_shape(const Network& network, const std::vector<int>& devices);

// Flows hashed onto equal paths (ECMP): what the slowest of them keeps of the rate that it would have alone,
// in the mean, where `flows` of them, each asking 1 / per_path of a path, are spread over `paths` at random.
// The fullest path of `paths` has k flows or fewer with the probability P(k)^paths, P the Poisson
// distribution of the mean flows / paths; it serves each at per_path / k of what it asks. 1 where there is
// one path.
double hashed_share(double flows, double paths, double per_path);

// Link-disjoint rings through `members` of a mesh, as many as there are (NCCL's topology search): orders of
// positions in `members`. Each can be run in both directions. Fewer than three members: none.
std::vector<std::vector<int>> mesh_rings(const std::vector<int>& mesh_links, int devices,
                                         const std::vector<int>& members);

// Links of a mesh that a bidirectional set of link-disjoint rings through `members` uses at each device, in
// one direction: 2 x the number of rings. Two members: the links between them. 0: no ring over these links.
int mesh_ring_links(const std::vector<int>& mesh_links, int devices, const std::vector<int>& members);

}  // namespace orrery
