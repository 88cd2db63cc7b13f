#include "report/link_map.h"

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/parse.h"
#include "topologies/network.h"

namespace orrery {
namespace {

constexpr std::array<const char*, 10> kKinds = {
    "device to switch", "NVLink", "PCIe",         "host bridge",   "network port",
    "uplink to spine",  "torus",  "local router", "global router", "shared memory"};

int node_of(const std::string& vertex) {
  if (vertex.rfind("node", 0) != 0) return -1;
  const auto number = parse_whole(vertex.substr(4, vertex.find('.') - 4));
  return number ? static_cast<int>(*number) : -1;
}

int tier_of(const std::string& vertex) {
  const std::size_t dot = vertex.find('.');
  const std::string part = dot == std::string::npos ? vertex : vertex.substr(dot + 1);
  if (part.rfind("gpu", 0) == 0 || part.rfind("rank", 0) == 0) return 0;
  if (part == "nvswitch" || part == "memory" || part.rfind("bridge", 0) == 0) return 1;
  if (part.rfind("nic", 0) == 0 || part == "interconnect") return 2;
  return vertex == "spine" || vertex.rfind("group", 0) == 0 ? 4 : 3;
}

struct KindUse {
  int links = 0, used = 0;
  double bandwidth_bytes_per_s = 0, sum = 0, most = 0, bytes = 0;
};

struct Edge {
  int kind = 0;
  double utilization = 0, bytes = 0;
};

class Map {
 public:
  Map(const Cluster& cluster, const sim::Simulation& simulation) : network_(cluster) {
    for (const sim::LinkLoad& load : simulation.links) loads_[load.name] = &load;
    for (const LinkId id : network_.all_links()) add(id);
  }

  Json write(int nodes) const {
    Json kinds = Json::array(), vertices = Json::array(), edges = Json::array();
    for (const auto& [kind, use] : kinds_)
      kinds.push_back({{"kind", kKinds.at(static_cast<std::size_t>(kind))},
                       {"links", use.links},
                       {"used", use.used},
                       {"bandwidth_bytes_per_s", use.bandwidth_bytes_per_s},
                       {"mean_utilization", use.links > 0 ? use.sum / use.links : 0},
                       {"most_utilization", use.most},
                       {"bytes", use.bytes}});
    for (const std::string& name : names_)
      vertices.push_back({{"name", name}, {"node", node_of(name)}, {"tier", tier_of(name)}});
    for (const auto& [ends, edge] : edges_)
      edges.push_back({{"from", ends.first},
                       {"to", ends.second},
                       {"kind", kKinds.at(static_cast<std::size_t>(edge.kind))},
                       {"utilization", edge.utilization},
                       {"bytes", edge.bytes}});
    return {{"nodes", nodes},
            {"drawn", std::min(nodes, kMostNodesDrawn)},
            {"kinds", kinds},
            {"vertices", vertices},
            {"edges", edges}};
  }

 private:
  void add(LinkId id) {
    const Link link = network_.link(id);
    const auto found = loads_.find(network_.name_of(id));
    const double utilization = found == loads_.end() ? 0 : found->second->utilization;
    const double bytes = found == loads_.end() ? 0 : found->second->bytes;
    KindUse& use = kinds_[static_cast<int>(link.kind)];
    ++use.links;
    use.used += bytes > 0 ? 1 : 0;
    use.bandwidth_bytes_per_s = std::max(use.bandwidth_bytes_per_s, link.bandwidth_bytes_per_s);
    use.sum += utilization;
    use.most = std::max(use.most, utilization);
    use.bytes += bytes;
    const LinkEnds ends = network_.ends_of(id);
    if (node_of(ends.from) >= kMostNodesDrawn || node_of(ends.to) >= kMostNodesDrawn) return;
    const bool fabric = node_of(ends.from) < 0 && node_of(ends.to) < 0;
    if (fabric && bytes <= 0) return;  // leaves of nodes that are not drawn, most of them
    std::pair<int, int> joined = {vertex(ends.from), vertex(ends.to)};
    if (joined.first > joined.second) std::swap(joined.first, joined.second);
    Edge& edge = edges_[joined];
    edge.kind = static_cast<int>(link.kind);
    edge.utilization = std::max(edge.utilization, utilization);
    edge.bytes += bytes;
  }

  int vertex(const std::string& name) {
    const auto [at, added] = index_.try_emplace(name, static_cast<int>(names_.size()));
    if (added) names_.push_back(name);
    return at->second;
  }

  Network network_;
  std::map<std::string, const sim::LinkLoad*> loads_;
  std::map<int, KindUse> kinds_;
  std::map<std::string, int> index_;
  std::vector<std::string> names_;
  std::map<std::pair<int, int>, Edge> edges_;
};

// Of a node, counted generously: both directions of its devices' and ports' links.
std::size_t most_links(const Cluster& cluster) {
  std::size_t links = 0;
  for (const NodeGroup& group : cluster.groups) {
    const auto devices = static_cast<std::size_t>(group.node.devices);
    const std::size_t mesh = group.node.intra.mesh_links.size();
    links += static_cast<std::size_t>(group.count) *
             (4 * devices + mesh + 2 * static_cast<std::size_t>(group.node.nic.count) + 6);
  }
  return links;
}

}  // namespace

Json network_json(const Cluster& cluster, const sim::Simulation& simulation) {
  if (most_links(cluster) > kMostLinks) return Json::object();
  return Map(cluster, simulation).write(cluster.nodes());
}

}  // namespace orrery
