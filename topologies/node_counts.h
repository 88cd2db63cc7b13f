// How many nodes of each kind a cluster has, for clusters of several kinds: "3+5".
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "topologies/cluster.h"

namespace orrery {

// In the order in which the cluster lists its groups; one number of a cluster of one kind.
struct NodeCounts {
  std::vector<int> of_kind;
  bool operator==(const NodeCounts&) const = default;
};
NodeCounts node_counts(const Cluster& cluster);
std::string text_of(const NodeCounts& counts);  // "3+5"
// What text_of writes; a kind of several may have none. Nothing where `text` is no such thing.
std::optional<NodeCounts> read_node_counts(std::string_view text);
std::string range_of_node_counts();  // for errors

// For people: the group's name, or what is in it.
std::string name_of(const Cluster& cluster, const NodeGroup& group);
// "4 nodes", of several kinds "4 nodes (3 of p3.8xlarge + 1 of g4dn.12xlarge)", in part "8 nodes (64 of 72
// devices each)".
std::string nodes_in_words(const Cluster& cluster);

// The same cluster with so many nodes of each kind, as with_nodes(cluster, int) for each; a kind of which
// none are left is left out. Of several kinds one number is that of all nodes. Throws UserError where another
// number is given, or a number for other kinds than it has.
Cluster with_nodes(Cluster cluster, const NodeCounts& nodes);

}  // namespace orrery
