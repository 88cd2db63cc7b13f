#include "topologies/cluster.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/format.h"
#include "topologies/node_counts.h"

namespace orrery {
namespace {

// `asked`: "`nodes` 4".
[[noreturn]] void refuse_for_kinds(const Cluster& cluster, const std::string& asked) {
  const std::size_t kinds = cluster.groups.size();
  std::vector<std::string> names;
  for (const NodeGroup& group : cluster.groups) names.push_back(name_of(cluster, group));
  throw UserError(fmt::format("{}: cluster '{}' has {} of node", asked, cluster.name,
                              counted(static_cast<std::int64_t>(kinds), "kind")),
                  kinds == 1 ? "expected one number"
                             : fmt::format("expected how many of each, {}: `nodes` {} is all of them",
                                           fmt::join(names, " + "), text_of(node_counts(cluster))));
}

// The most even factorisation of `nodes` into `dimensions` factors, largest first: each factor is the divisor
// of what remains that is nearest above its even share.
std::vector<int> even_torus(int nodes, std::size_t dimensions) {
  std::vector<int> torus;
  for (std::size_t left = dimensions; left > 1; --left) {
    const double share = std::pow(nodes, 1.0 / static_cast<double>(left));
    int factor = static_cast<int>(std::floor(share + 1e-9));
    factor = std::max(factor, 1);
    while (nodes % factor != 0) ++factor;
    torus.push_back(factor);
    nodes /= factor;
  }
  torus.push_back(nodes);
  std::sort(torus.rbegin(), torus.rend());
  return torus;
}

void fit_fabric(Fabric& fabric, int nodes) {
  if (fabric.kind == FabricKind::torus) {
    const auto product = std::accumulate(fabric.torus.begin(), fabric.torus.end(), 1LL, std::multiplies<>());
    if (product != nodes) fabric.torus = even_torus(nodes, std::max<std::size_t>(fabric.torus.size(), 1));
  } else if (fabric.kind == FabricKind::dragonfly) {
    const int per_group = fabric.routers * fabric.nodes_per_router;
    fabric.groups = (nodes + per_group - 1) / per_group;
  }
}

// So many nodes of a group are left, or there are more of them.
void resize(NodeGroup& group, int count) {
  if (count < group.count && !group.node.hosts.empty()) group.node.hosts.resize(count);
  if (count > group.count) group.node.hosts.clear();
  group.count = count;
}

// Of nodes that are left, by their new numbers. `before`: how many there were of each group.
void renumber_overrides(Cluster& cluster, const std::vector<int>& before) {
  std::vector<Override> kept;
  for (Override o : cluster.overrides) {
    int node = o.node, first = 0;
    std::size_t g = 0;
    for (; node >= before[g]; ++g) {
      node -= before[g];
      first += cluster.groups[g].count;
    }
    if (node >= cluster.groups[g].count) continue;
    o.node = first + node;
    kept.push_back(o);
  }
  cluster.overrides = std::move(kept);
}

// Groups without nodes, and devices that no node is left with.
void drop_empty(Cluster& cluster) {
  std::erase_if(cluster.groups, [](const NodeGroup& group) { return group.count == 0; });
  std::vector<DeviceProfile> used;
  std::vector<int> place(cluster.profiles.size(), -1);
  for (NodeGroup& group : cluster.groups) {
    int& at = place[static_cast<std::size_t>(group.node.profile)];
    if (at < 0) {
      at = static_cast<int>(used.size());
      used.push_back(cluster.profiles[static_cast<std::size_t>(group.node.profile)]);
    }
    group.node.profile = at;
  }
  cluster.profiles = std::move(used);
}

// The first `devices` devices of a mesh keep the rate of each of their links.
void cut_mesh(IntraNode& intra, int from, int devices) {
  const auto widest = [](const std::vector<int>& links, int n) {
    int most = 0;
    for (int i = 0; i < n; ++i)
      most = std::max(most, std::accumulate(links.begin() + i * n, links.begin() + (i + 1) * n, 0));
    return most;
  };
  std::vector<int> links;
  for (int i = 0; i < devices; ++i)
    links.insert(links.end(), intra.mesh_links.begin() + i * from,
                 intra.mesh_links.begin() + i * from + devices);
  const int before = widest(intra.mesh_links, from);
  const int after = widest(links, devices);
  if (after > 0) intra.bandwidth_bytes_per_s *= static_cast<double>(after) / before;
  intra.mesh_links = std::move(links);
}

void cut_node(NodeType& node, int devices) {
  if (!node.whole) node.whole = std::make_shared<const NodeType>(node);
  if (node.intra.kind == IntraKind::nvlink_mesh) cut_mesh(node.intra, node.devices, devices);
  if (node.intra.kind == IntraKind::pcie)
    node.intra.devices_per_bridge = std::min(node.intra.devices_per_bridge, devices);
  if (!node.intra.torus.empty()) node.intra.torus = even_torus(devices, node.intra.torus.size());
  if (!node.nic.of_device.empty()) node.nic.of_device.resize(devices);
  // As its price: others pay for what the rest of the node takes.
  node.host_power_w *= static_cast<double>(devices) / node.devices;
  node.devices = devices;
}

// A node that is no machine but a rack of them, joined by switches: of it some machines may be had.
bool is_rack(const NodeType& node) {
  constexpr int kMostInMachine = 16;
  return node.devices > kMostInMachine && node.intra.kind == IntraKind::nvswitch && node.intra.torus.empty();
}

// The fewest racks of which each gives as many of its devices, at least half; 0 where there are none such.
int fewest_alike(const NodeType& node, int devices) {
  if (!is_rack(node)) return 0;
  for (int racks = (devices + node.devices - 1) / node.devices; devices / racks >= (node.devices + 1) / 2;
       ++racks)
    if (devices % racks == 0) return racks;
  return 0;
}

Cluster with_ranks(Cluster cluster, int ranks) {
  NodeType& node = cluster.groups[0].node;
  const int before = node.devices;
  node.devices = ranks;
  for (int d = 0; d < ranks && node.nic.count > 0; ++d) {
    if (d >= before) node.nic.of_device.push_back(d % node.nic.count);
  }
  node.nic.of_device.resize(node.nic.count > 0 ? ranks : 0);
  DeviceProfile& profile = cluster.profiles[node.profile];
  const double memory = node.host_memory_bytes > 0 ? node.host_memory_bytes : profile.memory_bytes * before;
  profile.memory_bytes = memory / ranks;
  std::erase_if(cluster.overrides,
                [&](const Override& o) { return o.target == OverrideTarget::device && o.device >= ranks; });
  return cluster;
}

}  // namespace

int Cluster::nodes() const {
  int total = 0;
  for (const NodeGroup& group : groups) total += group.count;
  return total;
}

int Cluster::devices() const {
  int total = 0;
  for (const NodeGroup& group : groups) total += group.count * group.node.devices;
  return total;
}

DevicePlace Cluster::place(int device) const {
  int node = 0;
  int left = device;
  for (std::size_t g = 0; g < groups.size() && left >= 0; ++g) {
    const int per_node = groups[g].node.devices;
    if (left < groups[g].count * per_node)
      return {node + left / per_node, left % per_node, static_cast<int>(g)};
    left -= groups[g].count * per_node;
    node += groups[g].count;
  }
  throw InternalError(fmt::format("device {} of a cluster of {}", device, devices()));
}

int Cluster::first_device(int node) const {
  int first = 0;
  int left = node;
  for (const NodeGroup& group : groups) {
    if (left < group.count) return first + left * group.node.devices;
    left -= group.count;
    first += group.count * group.node.devices;
  }
  throw InternalError(fmt::format("node {} of a cluster of {}", node, nodes()));
}

const NodeType& Cluster::node_type(int node) const {
  int left = node;
  for (const NodeGroup& group : groups) {
    if (left < group.count) return group.node;
    left -= group.count;
  }
  throw InternalError(fmt::format("node {} of a cluster of {}", node, nodes()));
}

double Cluster::device_speed(int device) const {
  if (overrides.empty()) return 1;
  const DevicePlace at = place(device);
  double speed = 1;
  for (const Override& o : overrides) {
    if (o.node != at.node) continue;
    if (o.target == OverrideTarget::node || (o.target == OverrideTarget::device && o.device == at.local))
      speed *= o.speed;
  }
  return speed;
}

double Cluster::nic_speed(int node, int port) const {
  for (const Override& o : overrides) {
    if (o.target == OverrideTarget::nic && o.node == node && o.port == port) return o.speed;
  }
  return 1;
}

int devices_of_room(const Cluster& cluster) {
  if (!cluster.fabric.has_rooms()) return 0;
  return cluster.devices() / cluster.nodes() * cluster.fabric.nodes_of_group();
}

int devices_beside(const Cluster& cluster) {
  const NodeType& node = cluster.groups.front().node;
  const int devices = cluster.shared_cores > 0 ? cluster.devices() : std::max(1, node.devices);
  const int cores = cluster.shared_cores > 0 ? cluster.shared_cores : node.shared_cores;
  return cores > 0 ? std::min(devices, cores) : devices;
}

Cluster with_nodes(Cluster cluster, int nodes) {
  if (cluster.groups.size() > 1) refuse_for_kinds(cluster, fmt::format("`nodes` {}", nodes));
  return with_nodes(std::move(cluster), NodeCounts{{nodes}});
}

Cluster with_nodes(Cluster cluster, const NodeCounts& counts) {
  const std::vector<int>& wanted = counts.of_kind;
  const std::size_t kinds = cluster.groups.size();
  if (kinds > 1 && wanted == std::vector<int>{cluster.nodes()}) return cluster;
  if (wanted.size() != kinds) refuse_for_kinds(cluster, "`nodes` " + text_of(counts));
  std::int64_t nodes = 0;
  double devices = 0;
  for (std::size_t g = 0; g < kinds; ++g) {
    const bool sound = wanted[g] >= 0 && wanted[g] <= kMaxNodes;
    nodes = sound ? nodes + wanted[g] : kMaxNodes + std::int64_t{1};
    devices += static_cast<double>(wanted[g]) * cluster.groups[g].node.devices;
  }
  if (nodes < 1 || nodes > kMaxNodes)
    throw UserError(fmt::format("{} nodes", text_of(counts)),
                    fmt::format("expected from 1 to {}", kMaxNodes));
  if (devices > kMaxDevices)
    throw UserError(
        fmt::format("{} nodes of {:g} devices are too many", nodes, devices / static_cast<double>(nodes)),
        fmt::format("expected at most {} devices", kMaxDevices));
  for (std::size_t g = 0; g < kinds; ++g)
    if (nodes > 1 && wanted[g] > 0 && cluster.groups[g].node.nic.count == 0)
      throw UserError(fmt::format("nodes of '{}' have no network port, so {} of them are not connected",
                                  cluster.name, nodes),
                      "expected one node");
  if (nodes > 1 && cluster.fabric.transport == Transport::host)
    throw UserError(
        fmt::format("cluster '{}' is one host: its file names no fabric between nodes", cluster.name),
        "expected fabric.kind and fabric.transport in it");
  const std::vector<int> before = node_counts(cluster).of_kind;
  for (std::size_t g = 0; g < kinds; ++g) resize(cluster.groups[g], wanted[g]);
  fit_fabric(cluster.fabric, static_cast<int>(nodes));
  renumber_overrides(cluster, before);
  if (std::find(wanted.begin(), wanted.end(), 0) != wanted.end()) drop_empty(cluster);
  return cluster;
}

Cluster with_node_devices(Cluster cluster, int devices) {
  if (cluster.groups.size() > 1)
    throw UserError(fmt::format("nodes of {} devices: cluster '{}' has several kinds", devices, cluster.name),
                    "expected one");
  NodeGroup& group = cluster.groups.front();
  NodeType& node = group.node;
  if (devices < 1 || devices > kMaxDevicesPerNode)
    throw UserError(fmt::format("nodes of {} devices", devices),
                    fmt::format("expected from 1 to {}", kMaxDevicesPerNode));
  if (node.intra.kind != IntraKind::nvswitch)
    throw UserError(fmt::format("nodes of '{}' with another number of devices", cluster.name),
                    "expected devices that are joined by switches or a torus");
  const double times = static_cast<double>(devices) / node.devices;
  if (!node.intra.torus.empty() && devices != node.devices)
    node.intra.torus = even_torus(devices, node.intra.torus.size());
  node.devices = devices;
  node.host_memory_bytes *= times;
  node.storage_read_bytes_per_s *= times;
  node.storage_write_bytes_per_s *= times;
  node.host_power_w *= times;
  if (node.nic.count > 0) {
    node.nic.count = std::max(1, static_cast<int>(std::lround(node.nic.count * times)));
    node.nic.of_device.clear();
    for (int d = 0; d < devices; ++d)
      node.nic.of_device.push_back(static_cast<int>(static_cast<std::int64_t>(d) * node.nic.count / devices));
  }
  std::erase_if(cluster.overrides, [](const Override& o) { return o.target != OverrideTarget::node; });
  return cluster;
}

Cluster with_devices(Cluster cluster, int devices) {
  if (devices == cluster.devices()) return cluster;
  if (cluster.groups.size() > 1) refuse_for_kinds(cluster, fmt::format("`gpus` {}", devices));
  NodeGroup& group = cluster.groups.front();
  if (group.node.whole) {
    const std::shared_ptr<const NodeType> whole = group.node.whole;
    group.node = *whole;
    if (devices == group.node.devices) return cluster;
  }
  const int per_node = group.node.devices;
  if (devices < 1 || devices > kMaxDevices)
    throw UserError(fmt::format("{} devices", devices), fmt::format("expected from 1 to {}", kMaxDevices));
  if (group.node.shared_cores > 0 && group.count == 1) {
    if (devices > kMaxDevicesPerNode)
      throw UserError(fmt::format("{} ranks on one host", devices),
                      fmt::format("expected at most {}", kMaxDevicesPerNode));
    return with_ranks(std::move(cluster), devices);
  }
  if (devices % per_node == 0) return with_nodes(std::move(cluster), devices / per_node);
  const int nodes = devices < per_node ? 1 : fewest_alike(group.node, devices);
  if (nodes == 0) {
    const std::string below = fmt::format("{} or {}", devices / per_node * per_node,
                                          (devices / per_node + 1) * std::int64_t{per_node});
    throw UserError(fmt::format("{} devices are not whole nodes of {}", devices, per_node),
                    fmt::format("expected at most {} or a multiple of it, as {}{}", per_node, below,
                                is_rack(group.node) ? ", or as many of each of several racks" : ""));
  }
  cluster = with_nodes(std::move(cluster), nodes);
  const int of_each = devices / nodes;
  cut_node(cluster.groups[0].node, of_each);
  std::erase_if(cluster.overrides,
                [&](const Override& o) { return o.target == OverrideTarget::device && o.device >= of_each; });
  return cluster;
}

}  // namespace orrery
