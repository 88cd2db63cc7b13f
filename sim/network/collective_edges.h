// Which pairs of members exchange how many bytes in a collective's algorithm.
#pragma once

#include <vector>

#include "cost/collective_cost.h"

namespace orrery::sim {

// A directed transfer between two members (positions in the group). It carries
// share * unit * bytes of the collective.
struct Edge {
  int source = 0;
  int destination = 0;
  double share = 1;
};

// The shapes that the algorithms reduce to.
enum class EdgeShape : std::uint8_t { ring, chain, tree, switch_tree, all_pairs, from_root, to_root };
EdgeShape edge_shape(CollectiveKind kind, Algorithm algorithm);
// Bytes of an edge of share 1, per byte of the collective.
double edge_unit(CollectiveKind kind, Algorithm algorithm, int ranks);

// `devices` of the members, in the group's order. Rings and chains go through the members node by node; where
// a node's members own several network ports there is one ring a port, each with its share of the bytes, as
// NCCL's channels: it leaves a node by that port's member. Trees are NCCL's double binary tree over the nodes
// (half of the bytes on each) and a chain inside each node; a switch tree has the node's switch reduce
// instead, so that each member sends and receives the bytes once.
std::vector<Edge> collective_edges(EdgeShape shape, int root, const std::vector<int>& devices,
                                   const Cluster& cluster);

}  // namespace orrery::sim
