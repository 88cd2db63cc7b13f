#include "cost/group_shape.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "base/error.h"
#include "base/statistics.h"

namespace orrery {
namespace {

// Counts link-disjoint undirected rings through all members by depth-first search over Hamiltonian cycles.
// Eight devices have 2,520 cycles, so the search is over in microseconds to milliseconds.
class RingSearch {
 public:
  RingSearch(std::vector<int> links, int members) : links_(std::move(links)), members_(members) {}

  // The most rings that there are.
  std::vector<std::vector<int>> rings() {
    int bound = links_.empty() ? 0 : degree(0);
    for (int i = 1; i < members_; ++i) bound = std::min(bound, degree(i));
    bound /= 2;
    for (int wanted = bound; wanted > 0; --wanted) {
      budget_ = kBudget;
      if (find(wanted)) return found_;
    }
    return {};
  }

 private:
  // Cycles tried before a number of rings is given up: enough for eight devices of any hybrid mesh built.
  static constexpr int kBudget = 200'000;

  int& link(int a, int b) { return links_[static_cast<std::size_t>(a) * members_ + b]; }
  int degree(int a) {
    int sum = 0;
    for (int b = 0; b < members_; ++b) sum += link(a, b);
    return sum;
  }
  bool find(int wanted) {
    if (wanted == 0) return true;
    std::vector<int> path = {0};
    return extend(path, 1u, wanted);
  }
  bool extend(std::vector<int>& path, unsigned visited, int wanted) {
    if (--budget_ < 0) return false;
    const int here = path.back();
    if (static_cast<int>(path.size()) == members_) {
      if (link(here, 0) <= 0) return false;
      take(path, -1);
      found_.push_back(path);
      if (find(wanted - 1)) return true;
      found_.pop_back();
      take(path, +1);
      return false;
    }
    for (int next = 1; next < members_; ++next) {
      if ((visited >> next & 1u) != 0 || link(here, next) <= 0) continue;
      path.push_back(next);
      if (extend(path, visited | 1u << next, wanted)) return true;
      path.pop_back();
    }
    return false;
  }
  void take(const std::vector<int>& path, int change) {
    for (std::size_t i = 0; i < path.size(); ++i) {
      const int a = path[i];
      const int b = path[(i + 1) % path.size()];
      link(a, b) += change;
      link(b, a) += change;
    }
  }

  std::vector<int> links_;
  int members_;
  int budget_ = 0;
  std::vector<std::vector<int>> found_;
};

struct NodeMembers {
  std::vector<int> devices;  // distinct, ascending
  int ranks = 0;
};

// What the members of one node see of each other.
struct Inside {
  PathClass path = PathClass::self;
  double bandwidth_bytes_per_s = 0;
  double latency_s = 0;
  double all_pairs_bandwidth_bytes_per_s = 0;
  double to_one_bandwidth_bytes_per_s = 0;
  double neighbour_bandwidth_bytes_per_s = 0;
  double bridge_bandwidth_bytes_per_s = 0;
  int bridges = 1;
};

PathClass path_of(IntraKind kind) {
  switch (kind) {
    case IntraKind::nvswitch:
    case IntraKind::nvlink_mesh:
      return PathClass::nvlink;
    case IntraKind::pcie:
      return PathClass::pcie;
    case IntraKind::shared_memory:
      return PathClass::shared_memory;
  }
  return PathClass::shared_memory;
}

// Bytes per second that every source sends, when each pair carries as much as any other and the fullest link
// decides: to all others, or all to the first.
double shared_rate(const Network& network, const std::vector<int>& devices, bool to_one) {
  std::map<LinkId, double> seconds;  // of one byte on every pair
  double fullest = 0;
  for (const int source : devices) {
    for (const int destination : devices) {
      if (source == destination || (to_one && destination != devices.front())) continue;
      for (const Link& link : network.route(source, destination).links) {
        double& load = seconds[link.id];
        load += 1 / link.bandwidth_bytes_per_s;
        fullest = std::max(fullest, load);
      }
    }
  }
  return (static_cast<double>(devices.size()) - 1) / fullest;
}

// Of messages from each to the next, and from the last to the first.
double neighbour_rate(const Network& network, const std::vector<int>& devices) {
  double narrowest = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < devices.size(); ++i)
    for (const Link& link : network.route(devices[i], devices[(i + 1) % devices.size()]).links)
      narrowest = std::min(narrowest, link.bandwidth_bytes_per_s);
  return narrowest;
}

// A torus: rings along every dimension in which the members differ, in both directions where it closes.
// Members that stand apart by `stride` share the links between them with as many other groups.
void in_torus(const IntraNode& intra, const std::vector<int>& locals, Inside& result) {
  const std::size_t dimensions = intra.torus.size();
  double of_all = 0;
  for (const int size : intra.torus) of_all += size > 2 ? 2 : size > 1 ? 1 : 0;
  const double link = intra.bandwidth_bytes_per_s / std::max(1.0, of_all);
  std::vector<std::set<int>> places(dimensions);
  for (int local : locals)
    for (std::size_t d = dimensions; d-- > 0; local /= intra.torus[d])
      places[d].insert(local % intra.torus[d]);
  double links = 0;
  double hops = 0;
  double all_pairs = std::numeric_limits<double>::infinity();
  std::size_t box = 1;
  for (std::size_t d = 0; d < dimensions; ++d) {
    const auto count = static_cast<int>(places[d].size());
    box *= places[d].size();
    if (count < 2) continue;
    const int size = intra.torus[d];
    const double stride = static_cast<double>(*places[d].rbegin() - *places[d].begin()) / (count - 1);
    const bool closes = size > 2 && stride * count >= size;
    const double here = (closes ? 2 : 1) / stride;
    links += here;
    hops += stride * (closes ? count / 2 : count - 1);
    // A pair is a quarter of a ring apart in the mean, a third of a line.
    const double apart = closes ? count / 4.0 : (count + 1) / 3.0;
    all_pairs = std::min(all_pairs, here * link / std::max(apart, 0.5));
  }
  if (box != locals.size()) links = 1, hops = static_cast<double>(locals.size()) - 1;  // no box: a chain
  result.bandwidth_bytes_per_s = links * link;
  result.all_pairs_bandwidth_bytes_per_s = std::min(result.bandwidth_bytes_per_s, all_pairs);
  result.to_one_bandwidth_bytes_per_s = result.bandwidth_bytes_per_s;
  result.latency_s = intra.latency_s * hops / (static_cast<double>(locals.size()) - 1);
}

Inside inside(const Network& network, int node, const NodeMembers& members) {
  const Cluster& cluster = network.cluster();
  const NodeType& type = cluster.node_type(node);
  Inside result;
  result.path = path_of(type.intra.kind);
  result.bandwidth_bytes_per_s = type.intra.bandwidth_bytes_per_s;
  result.latency_s = type.intra.latency_s;
  std::vector<int> locals;
  for (const int device : members.devices) locals.push_back(cluster.place(device).local);
  const bool several_ways = !type.intra.torus.empty() || type.intra.kind == IntraKind::nvlink_mesh;
  if (several_ways && locals.size() > 2)
    result.neighbour_bandwidth_bytes_per_s = neighbour_rate(network, members.devices);
  if (!type.intra.torus.empty() && locals.size() > 1) {
    in_torus(type.intra, locals, result);
    return result;
  }
  if (type.intra.kind == IntraKind::nvlink_mesh) {
    int most = 1;
    for (int a = 0; a < type.devices; ++a) {
      int sum = 0;
      for (int b = 0; b < type.devices; ++b) sum += type.intra.mesh_links[a * type.devices + b];
      most = std::max(most, sum);
    }
    const int links = mesh_ring_links(type.intra.mesh_links, type.devices, locals);
    if (links > 0) {
      result.bandwidth_bytes_per_s *= static_cast<double>(links) / most;
    } else {
      // No ring over NVLink alone: NCCL goes through a neighbour or PCIe; one link's rate is the better of
      // the two.
      result.bandwidth_bytes_per_s /= most;
    }
  } else if (type.intra.kind == IntraKind::pcie && type.intra.devices_per_bridge > 0 &&
             type.intra.bridge_bandwidth_bytes_per_s > 0) {
    const int per_bridge = type.intra.devices_per_bridge;
    if (locals.front() / per_bridge != locals.back() / per_bridge) {
      result.bridge_bandwidth_bytes_per_s = type.intra.bridge_bandwidth_bytes_per_s;
      for (std::size_t i = 1; i < locals.size(); ++i)
        if (locals[i] / per_bridge != locals[i - 1] / per_bridge) ++result.bridges;
    }
  }
  const bool shares = members.devices.size() > 1 &&
                      (type.intra.kind == IntraKind::nvlink_mesh || result.bridge_bandwidth_bytes_per_s > 0);
  result.all_pairs_bandwidth_bytes_per_s =
      shares ? shared_rate(network, members.devices, /*to_one=*/false) : result.bandwidth_bytes_per_s;
  result.to_one_bandwidth_bytes_per_s =
      shares ? shared_rate(network, members.devices, /*to_one=*/true) : result.bandwidth_bytes_per_s;
  return result;
}

int port_of(const NodeType& type, int local) {
  if (!type.nic.of_device.empty()) return type.nic.of_device[local];
  return static_cast<int>(static_cast<std::int64_t>(local) * type.nic.count / type.devices);
}

struct Ports {
  double together_bytes_per_s = 0;
  double one_bytes_per_s = 0;
};

Ports ports(const Cluster& cluster, int node, const NodeMembers& members) {
  const NodeType& type = cluster.node_type(node);
  std::map<int, int> users;
  for (const int device : members.devices) ++users[port_of(type, cluster.place(device).local)];
  Ports result;
  result.one_bytes_per_s = -1;
  double alive = 0;
  for (int port = 0; port < type.nic.count; ++port) {
    alive += cluster.nic_speed(node, port) > 0 ? 1 : 0;
  }
  for (const auto& [port, count] : users) {
    double rate = type.nic.bandwidth_bytes_per_s * cluster.nic_speed(node, port);
    // A dead port's traffic goes through the others of the node, which then carry more than their own.
    if (rate <= 0 && alive > 0) continue;
    if (type.nic.pcie_bandwidth_bytes_per_s > 0) {
      rate = std::min(rate, count * type.nic.pcie_bandwidth_bytes_per_s);
    }
    result.together_bytes_per_s += rate;
    const double one =
        type.nic.pcie_bandwidth_bytes_per_s > 0 ? std::min(rate, type.nic.pcie_bandwidth_bytes_per_s) : rate;
    result.one_bytes_per_s = result.one_bytes_per_s < 0 ? one : std::min(result.one_bytes_per_s, one);
  }
  if (result.together_bytes_per_s <= 0) {
    for (int port = 0; port < type.nic.count; ++port) {
      const double rate = type.nic.bandwidth_bytes_per_s * cluster.nic_speed(node, port);
      result.together_bytes_per_s = std::max(result.together_bytes_per_s, rate);
    }
    result.one_bytes_per_s = result.together_bytes_per_s;
  }
  return result;
}

// Members' neighbours in other leaves, and what hashing leaves of the rates where their flows collide. All
// groups of the machine are taken to do the same at once, so that each leaf has as many nodes that send out
// of it.
void hash_flows(const Cluster& cluster, double leaving, double rails, GroupShape* shape) {
  const Fabric& fabric = cluster.fabric;
  if (!fabric.hashes_flows || leaving <= 0) return;
  const NodeType& node = cluster.groups.front().node;
  const double ports = rails > 1 || fabric.kind == FabricKind::rail_fat_tree ? 1 : node.nic.count;
  const double paths = std::max(1.0, std::floor(fabric.nodes_per_leaf * ports / fabric.oversubscription));
  const auto share = [&](double nodes, double flows) {
    return hashed_share(nodes * ports * flows, paths, flows);
  };
  const double ring = share(leaving * fabric.nodes_per_leaf, fabric.flows_per_port);
  // Of all pairs every node sends to all others of its group, most of them in other leaves.
  const double peers = std::max(1, shape->nodes - 1);
  const double pairs = share(fabric.nodes_per_leaf, fabric.flows_per_port * peers);
  shape->inter_bandwidth_bytes_per_s *= ring;
  shape->port_bandwidth_bytes_per_s *= ring;
  shape->pairs_share = pairs / ring;
}

}  // namespace

double hashed_share(double flows, double paths, double per_path) {
  if (paths <= 1 || flows <= 0) return 1;
  const double mean = flows / paths;
  // So many that they are nearly normal, and the fullest of `paths` lies where one is expected.
  constexpr double kMany = 300;
  if (mean > kMany) return std::min(1.0, per_path / (mean + std::sqrt(mean) * expected_largest(paths)));
  // E[max(1, fullest / per_path)] = 1 + sum over k >= per_path of P(fullest > k) / per_path.
  double term = std::exp(-mean), below = 0, slowdown = 1;
  for (int k = 0;; ++k) {
    below = std::min(1.0, below + term);
    term *= mean / (k + 1);
    const double fuller = 1 - std::pow(below, paths);
    if (k >= per_path) slowdown += fuller / per_path;
    if (k > mean && (fuller < 1e-12 || term < 1e-18)) break;  // the sum of all terms may stay below 1
  }
  return 1 / slowdown;
}

std::vector<std::vector<int>> mesh_rings(const std::vector<int>& mesh_links, int devices,
                                         const std::vector<int>& members) {
  const int n = static_cast<int>(members.size());
  if (n < 3) return {};
  std::vector<int> links(static_cast<std::size_t>(n) * n);
  for (int a = 0; a < n; ++a) {
    for (int b = 0; b < n; ++b) {
      links[static_cast<std::size_t>(a) * n + b] =
          a == b ? 0 : mesh_links[static_cast<std::size_t>(members[a]) * devices + members[b]];
    }
  }
  return RingSearch(std::move(links), n).rings();
}

int mesh_ring_links(const std::vector<int>& mesh_links, int devices, const std::vector<int>& members) {
  if (members.size() < 2) return 0;
  const auto links = [&](int a, int b) {
    return mesh_links[static_cast<std::size_t>(members[a]) * devices + members[b]];
  };
  const int n = static_cast<int>(members.size());
  // Where all pairs are joined alike, rings use every link, in one direction or the other (complete directed
  // graphs are decomposed into Hamiltonian cycles: Tillson 1980).
  bool alike = links(0, 1) > 0;
  for (int a = 0; a < n && alike; ++a)
    for (int b = 0; b < n; ++b) alike = alike && (a == b || links(a, b) == links(0, 1));
  if (alike) return links(0, 1) * (n - 1);
  if (n == 2) return 0;
  return 2 * static_cast<int>(mesh_rings(mesh_links, devices, members).size());
}

GroupShape group_shape(const Network& network, const std::vector<int>& devices) {
  ORRERY_CHECK(!devices.empty(), "a group without members");
  const Cluster& cluster = network.cluster();
  std::map<int, NodeMembers> nodes;
  for (const int device : devices) {
    NodeMembers& members = nodes[cluster.place(device).node];
    members.devices.push_back(device);
    ++members.ranks;
  }
  GroupShape shape;
  shape.ranks = static_cast<int>(devices.size());
  shape.nodes = static_cast<int>(nodes.size());
  shape.ranks_per_node = 0;
  shape.min_ranks_per_node = shape.ranks;
  shape.in_network_reduction = true;
  bool first = true;
  for (auto& [node, members] : nodes) {
    std::sort(members.devices.begin(), members.devices.end());
    members.devices.erase(std::unique(members.devices.begin(), members.devices.end()), members.devices.end());
    const NodeType& type = cluster.node_type(node);
    shape.ranks_per_node = std::max(shape.ranks_per_node, members.ranks);
    shape.min_ranks_per_node = std::min(shape.min_ranks_per_node, members.ranks);
    shape.in_network_reduction = shape.in_network_reduction && type.intra.in_network_reduction;
    const std::string& generation = cluster.profiles[type.profile].generation;
    shape.generation = first || shape.generation == generation ? generation : std::string();
    shape.cores_per_node = first ? type.shared_cores : std::min(shape.cores_per_node, type.shared_cores);
    if (members.ranks > 1) {
      const Inside here = inside(network, node, members);
      if (shape.intra == PathClass::self) {
        shape.intra = here.path;
        shape.intra_bandwidth_bytes_per_s = here.bandwidth_bytes_per_s;
      } else {
        shape.intra = std::max(shape.intra, here.path);
        shape.intra_bandwidth_bytes_per_s =
            std::min(shape.intra_bandwidth_bytes_per_s, here.bandwidth_bytes_per_s);
      }
      shape.intra_latency_s = std::max(shape.intra_latency_s, here.latency_s);
      const auto narrowest = [](double old, double now) {
        return now <= 0 ? old : old <= 0 ? now : std::min(old, now);
      };
      shape.all_pairs_bandwidth_bytes_per_s =
          narrowest(shape.all_pairs_bandwidth_bytes_per_s, here.all_pairs_bandwidth_bytes_per_s);
      shape.to_one_bandwidth_bytes_per_s =
          narrowest(shape.to_one_bandwidth_bytes_per_s, here.to_one_bandwidth_bytes_per_s);
      shape.neighbour_bandwidth_bytes_per_s =
          narrowest(shape.neighbour_bandwidth_bytes_per_s, here.neighbour_bandwidth_bytes_per_s);
      shape.bridge_bandwidth_bytes_per_s =
          narrowest(shape.bridge_bandwidth_bytes_per_s, here.bridge_bandwidth_bytes_per_s);
      shape.bridges = std::max(shape.bridges, here.bridges);
    }
    if (shape.nodes > 1) {
      const Ports here = ports(cluster, node, members);
      const auto narrowest = [first](double old, double now) { return first ? now : std::min(old, now); };
      shape.inter_bandwidth_bytes_per_s =
          narrowest(shape.inter_bandwidth_bytes_per_s, here.together_bytes_per_s);
      shape.port_bandwidth_bytes_per_s = narrowest(shape.port_bandwidth_bytes_per_s, here.one_bytes_per_s);
      shape.direct = shape.direct && type.nic.direct;
    }
    first = false;
  }
  if (shape.nodes == 1) return shape;

  // Neighbours on the ring of nodes. What lies between leaves carries all rails of a node together, except
  // where every rail has leaves of its own.
  const double rails =
      cluster.fabric.kind == FabricKind::rail_fat_tree && shape.port_bandwidth_bytes_per_s > 0
          ? std::max(1.0, std::round(shape.inter_bandwidth_bytes_per_s / shape.port_bandwidth_bytes_per_s))
          : 1.0;
  int leaving = 0;  // nodes whose neighbour is on another leaf
  for (auto it = nodes.begin(); it != nodes.end(); ++it) {
    const auto next = std::next(it) == nodes.end() ? nodes.begin() : std::next(it);
    const Route route = network.route(it->second.devices.front(), next->second.devices.front());
    double wide_s = 0;
    leaving += std::any_of(route.links.begin(), route.links.end(),
                           [](const Link& link) { return link.kind == LinkKind::leaf_uplink; });
    for (const Link& link : route.links)
      if (cluster.fabric.has_rooms() && link.kind == LinkKind::dragonfly_global) wide_s += link.latency_s;
    shape.wide_s = std::max(shape.wide_s, wide_s);
    shape.inter_latency_s = std::max(shape.inter_latency_s, route.latency_s - wide_s);
    for (const Link& link : route.links) {
      if (link.kind == LinkKind::leaf_uplink || link.kind == LinkKind::torus ||
          link.kind == LinkKind::dragonfly_local || link.kind == LinkKind::dragonfly_global) {
        shape.inter_bandwidth_bytes_per_s =
            std::min(shape.inter_bandwidth_bytes_per_s, rails * link.bandwidth_bytes_per_s);
        shape.port_bandwidth_bytes_per_s =
            std::min(shape.port_bandwidth_bytes_per_s, link.bandwidth_bytes_per_s);
      }
    }
  }
  hash_flows(cluster, static_cast<double>(leaving) / shape.nodes, rails, &shape);
  if (cluster.fabric.has_rooms()) {
    std::set<int> rooms;
    for (const auto& [node, members] : nodes) rooms.insert(node / cluster.fabric.nodes_of_group());
    shape.rooms = static_cast<int>(rooms.size());
  }
  return shape;
}

}  // namespace orrery
