#include "topologies/node_counts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/format.h"
#include "base/parse.h"

namespace orrery {

NodeCounts node_counts(const Cluster& cluster) {
  NodeCounts counts;
  for (const NodeGroup& group : cluster.groups) counts.of_kind.push_back(group.count);
  return counts;
}

std::string text_of(const NodeCounts& counts) {
  return fmt::format("{}", fmt::join(counts.of_kind, "+"));
}

std::optional<NodeCounts> read_node_counts(std::string_view text) {
  const std::vector<std::string> parts = split(text, '+');
  NodeCounts counts;
  bool any = false;
  for (const std::string& part : parts) {
    const auto number = parse_count(part, 1000);
    if (!number || *number < 0 || *number > kMaxNodes) return std::nullopt;
    any = any || *number > 0;
    counts.of_kind.push_back(static_cast<int>(*number));
  }
  return any ? std::optional(counts) : std::nullopt;
}

std::string range_of_node_counts() {
  return fmt::format("a whole number from 1 to {}, or one of each kind of node, as in 3+5", kMaxNodes);
}

std::string name_of(const Cluster& cluster, const NodeGroup& group) {
  if (!group.node.name.empty()) return group.node.name;
  return fmt::format("{} {}", group.node.devices,
                     cluster.profiles[static_cast<std::size_t>(group.node.profile)].name);
}

std::string nodes_in_words(const Cluster& cluster) {
  const std::string all = counted(cluster.nodes(), "node");
  if (cluster.groups.size() == 1) {
    const NodeType& node = cluster.groups.front().node;
    if (!node.whole) return all;
    return fmt::format("{} ({} of {} devices{})", all, node.devices, node.whole->devices,
                       cluster.nodes() > 1 ? " each" : "");
  }
  std::vector<std::string> kinds;
  for (const NodeGroup& group : cluster.groups)
    kinds.push_back(fmt::format("{} of {}", group.count, name_of(cluster, group)));
  return fmt::format("{} ({})", all, fmt::join(kinds, " + "));
}

}  // namespace orrery
