// Names and listing of the links of a Network.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "topologies/link_id.h"
#include "topologies/network.h"

namespace orrery {
namespace {

std::string device_name(const Cluster& cluster, int node, std::int64_t local) {
  const NodeType& type = cluster.node_type(node);
  const bool gpu = cluster.profiles[type.profile].kind == DeviceKind::gpu;
  return fmt::format("node{}.{}{}", node, gpu ? "gpu" : "rank", local);
}

std::string leaf_name(const Cluster& cluster, int leaf, std::int64_t rail) {
  if (cluster.fabric.kind == FabricKind::star) return "switch";
  if (cluster.fabric.kind == FabricKind::rail_fat_tree) return fmt::format("pod{}.leaf{}", leaf, rail);
  return fmt::format("leaf{}", leaf);
}

// What port `port` of node `node` is plugged into.
std::string attachment(const Cluster& cluster, int node, std::int64_t port) {
  const Fabric& fabric = cluster.fabric;
  switch (fabric.kind) {
    case FabricKind::star:
      return "switch";
    case FabricKind::fat_tree:
    case FabricKind::rail_fat_tree:
      return leaf_name(cluster, node / fabric.nodes_per_leaf, port);
    case FabricKind::torus:
      return fmt::format("node{}.router", node);
    case FabricKind::dragonfly: {
      const int per_group = fabric.routers * fabric.nodes_per_router;
      return fmt::format("group{}.router{}", node / per_group, node % per_group / fabric.nodes_per_router);
    }
  }
  return "switch";
}

int torus_neighbour(const Fabric& fabric, int node, std::int64_t dimension, bool backwards) {
  int stride = 1;
  for (std::size_t d = fabric.torus.size(); d-- > static_cast<std::size_t>(dimension) + 1;)
    stride *= fabric.torus[d];
  const int size = fabric.torus[dimension];
  const int here = node / stride % size;
  return node + ((here + (backwards ? size - 1 : 1)) % size - here) * stride;
}

// The end of a device's own link that is not the device.
std::string hub_of(const Cluster& cluster, LinkKind kind, int node, std::int64_t local) {
  const NodeType& type = cluster.node_type(node);
  if (kind == LinkKind::device_port)
    return fmt::format("node{}.{}", node,
                       type.intra.kind == IntraKind::shared_memory ? "memory" : "nvswitch");
  const int bridge =
      type.intra.devices_per_bridge > 0 ? static_cast<int>(local) / type.intra.devices_per_bridge : 0;
  return fmt::format("node{}.bridge{}", node, bridge);
}

}  // namespace

std::string_view name_of(LinkKind kind) {
  switch (kind) {
    case LinkKind::device_port:
      return "device ports";
    case LinkKind::mesh:
      return "NVLink mesh";
    case LinkKind::pcie:
      return "PCIe";
    case LinkKind::bridge:
      return "PCIe bridges";
    case LinkKind::nic:
      return "network ports";
    case LinkKind::leaf_uplink:
      return "uplinks";
    case LinkKind::torus:
      return "torus";
    case LinkKind::dragonfly_local:
      return "links in a group";
    case LinkKind::dragonfly_global:
      return "links between groups";
    case LinkKind::memory:
      return "shared memory";
  }
  throw InternalError("a link is of no kind");
}

LinkEnds Network::ends_of(LinkId id) const {
  const LinkParts at = parts_of(id);
  LinkEnds ends;
  switch (at.kind) {
    case LinkKind::device_port:
    case LinkKind::pcie:
      ends = {device_name(*cluster_, at.owner, at.index), hub_of(*cluster_, at.kind, at.owner, at.index)};
      break;
    case LinkKind::mesh: {
      const int devices = cluster_->node_type(at.owner).devices;
      ends = {device_name(*cluster_, at.owner, at.index / devices),
              device_name(*cluster_, at.owner, at.index % devices)};
      break;
    }
    case LinkKind::bridge:
      ends = {fmt::format("node{}.bridge{}", at.owner, at.index),
              fmt::format("node{}.interconnect", at.owner)};
      break;
    case LinkKind::nic:
      ends = {fmt::format("node{}.nic{}", at.owner, at.index), attachment(*cluster_, at.owner, at.index)};
      break;
    case LinkKind::leaf_uplink:
      ends = {leaf_name(*cluster_, at.owner, at.index),
              cluster_->fabric.kind == FabricKind::star ? "switch" : "spine"};
      break;
    case LinkKind::torus:
      return {fmt::format("node{}.router", at.owner),
              fmt::format("node{}.router", torus_neighbour(cluster_->fabric, at.owner, at.index, at.down))};
    case LinkKind::dragonfly_local:
      ends = {fmt::format("group{}.router{}", at.owner, at.index / cluster_->fabric.routers),
              fmt::format("group{}.router{}", at.owner, at.index % cluster_->fabric.routers)};
      break;
    case LinkKind::dragonfly_global:
      ends = {fmt::format("group{}", at.owner), fmt::format("group{}", at.index)};
      break;
    case LinkKind::memory:
      ends = {fmt::format("node{}.memory", at.owner), fmt::format("node{}.memory", at.owner)};
      break;
  }
  if (at.down) std::swap(ends.from, ends.to);
  return ends;
}

std::string Network::name_of(LinkId id) const {
  const LinkParts at = parts_of(id);
  const char* way = at.down ? "down" : "up";
  switch (at.kind) {
    case LinkKind::device_port:
      return fmt::format("{}.{}", device_name(*cluster_, at.owner, at.index), way);
    case LinkKind::pcie:
      return fmt::format("{}.pcie.{}", device_name(*cluster_, at.owner, at.index), way);
    case LinkKind::mesh: {
      const int devices = cluster_->node_type(at.owner).devices;
      return fmt::format("node{}.nvlink{}-{}", at.owner, at.index / devices, at.index % devices);
    }
    case LinkKind::bridge:
      return fmt::format("node{}.bridge{}.{}", at.owner, at.index, way);
    case LinkKind::nic:
      return fmt::format("node{}.nic{}.{}", at.owner, at.index, way);
    case LinkKind::leaf_uplink:
      if (cluster_->fabric.kind == FabricKind::star) return "switch.backbone";
      return fmt::format("{}.uplink.{}", leaf_name(*cluster_, at.owner, at.index), way);
    case LinkKind::torus:
      return fmt::format("node{}.torus{}.{}", at.owner, at.index, at.down ? "minus" : "plus");
    case LinkKind::dragonfly_local:
      return fmt::format("group{}.router{}-{}", at.owner, at.index / cluster_->fabric.routers,
                         at.index % cluster_->fabric.routers);
    case LinkKind::dragonfly_global:
      return fmt::format("group{}-{}", at.owner, at.index);
    case LinkKind::memory:
      return fmt::format("node{}.memory", at.owner);
  }
  throw InternalError(fmt::format("link {} is of no kind", id));
}

std::vector<LinkId> Network::all_links() const {
  std::vector<LinkId> links;
  const auto both = [&](LinkKind kind, int owner, std::int64_t index) {
    links.push_back(link_id(kind, owner, index, false));
    links.push_back(link_id(kind, owner, index, true));
  };
  const int nodes = cluster_->nodes();
  int ports = 0;
  for (int node = 0; node < nodes; ++node) {
    const NodeType& type = cluster_->node_type(node);
    const IntraKind kind = type.intra.kind;
    ports = std::max(ports, type.nic.count);
    for (int d = 0; d < type.devices; ++d) {
      if (type.devices > 1 && (kind == IntraKind::nvswitch || kind == IntraKind::shared_memory))
        both(LinkKind::device_port, node, d);
      if (link(link_id(LinkKind::pcie, node, d, false)).bandwidth_bytes_per_s > 0)
        both(LinkKind::pcie, node, d);
    }
    for (std::size_t pair = 0; pair < type.intra.mesh_links.size(); ++pair) {
      if (type.intra.mesh_links[pair] > 0)
        links.push_back(link_id(LinkKind::mesh, node, static_cast<std::int64_t>(pair), false));
    }
    const int per_bridge = type.intra.devices_per_bridge;
    const int bridges =
        kind == IntraKind::pcie && per_bridge > 0 ? (type.devices + per_bridge - 1) / per_bridge : 0;
    for (int bridge = 0; bridges > 1 && bridge < bridges; ++bridge) both(LinkKind::bridge, node, bridge);
    if (kind == IntraKind::shared_memory && type.devices > 1)
      links.push_back(link_id(LinkKind::memory, node, 0, false));
    for (int port = 0; nodes > 1 && port < type.nic.count; ++port) both(LinkKind::nic, node, port);
  }
  const Fabric& fabric = cluster_->fabric;
  const bool rails = fabric.kind == FabricKind::rail_fat_tree;
  if (nodes > 1 && fabric.kind == FabricKind::star && fabric.link_bandwidth_bytes_per_s > 0) {
    links.push_back(link_id(LinkKind::leaf_uplink, 0, 0, false));
  } else if (nodes > 1 && (rails || fabric.kind == FabricKind::fat_tree)) {
    const int leaves = (nodes + fabric.nodes_per_leaf - 1) / fabric.nodes_per_leaf;
    for (int leaf = 0; leaf < leaves && (leaves > 1 || rails); ++leaf) {
      for (int rail = 0; rail < (rails ? ports : 1); ++rail) both(LinkKind::leaf_uplink, leaf, rail);
    }
  } else if (nodes > 1 && fabric.kind == FabricKind::torus) {
    for (int node = 0; node < nodes; ++node) {
      for (std::size_t d = 0; d < fabric.torus.size(); ++d) {
        if (fabric.torus[d] > 1) both(LinkKind::torus, node, static_cast<std::int64_t>(d));
      }
    }
  } else if (nodes > 1 && fabric.kind == FabricKind::dragonfly) {
    const std::int64_t routers = fabric.routers;
    for (int group = 0; group < fabric.groups; ++group) {
      for (std::int64_t pair = 0; pair < routers * routers; ++pair) {
        if (pair / routers != pair % routers)
          links.push_back(link_id(LinkKind::dragonfly_local, group, pair, false));
      }
      for (int other = 0; other < fabric.groups; ++other) {
        if (other != group) links.push_back(link_id(LinkKind::dragonfly_global, group, other, false));
      }
    }
  }
  std::sort(links.begin(), links.end());
  return links;
}

}  // namespace orrery
