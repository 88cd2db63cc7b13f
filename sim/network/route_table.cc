#include "sim/network/route_table.h"

#include "cost/collective_cost.h"

namespace orrery::sim {
namespace {

bool is_inside_node(LinkKind kind) {
  return kind == LinkKind::device_port || kind == LinkKind::mesh || kind == LinkKind::pcie ||
         kind == LinkKind::bridge || kind == LinkKind::memory;
}

}  // namespace

std::span<const int> RouteTable::links(int source, int destination) {
  if (source == destination) return {};
  const auto [route, added] =
      index_.try_emplace(static_cast<std::uint64_t>(source) << 32 | static_cast<std::uint32_t>(destination),
                         static_cast<std::uint32_t>(begin_.size() - 1));
  if (added) add_route(source, destination);
  const std::size_t begin = begin_[route];
  return {links_.data() + begin, begin_[route + 1] - begin};
}

void RouteTable::add_route(int source, int destination) {
  const Cluster& cluster = network_.cluster();
  for (const Link& link : network_.route(source, destination).links) {
    const auto [index, added] = flows_.add_link(link.id);
    links_.push_back(index);
    if (!added) continue;
    const NodeType& node = cluster.groups[static_cast<std::size_t>(cluster.place(source).group)].node;
    flows_.set_capacity(index, link.bandwidth_bytes_per_s * usable_fraction(link.kind, node, cluster));
    inside_.resize(flows_.links(), false);
    inside_[static_cast<std::size_t>(index)] = is_inside_node(link.kind);
  }
  begin_.push_back(links_.size());
}

}  // namespace orrery::sim
