// Cluster <-> proto::Cluster, with every check of cluster.h.
#include <fmt/format.h>

#include <cmath>
#include <numeric>
#include <set>
#include <tuple>

#include "base/error.h"
#include "proto/cluster.pb.h"
#include "proto/field_check.h"
#include "topologies/cluster.h"
#include "topologies/communication_defaults.h"
#include "topologies/device_catalog.h"

namespace orrery {
namespace {

constexpr int kMaxMeshDevices = 256;
constexpr int kMaxPorts = 1024;
constexpr int kMaxTorusDimensions = 8;

// Between two devices of a node at least as good as two NVLink hops.
bool mesh_joins(const std::vector<int>& links, int devices, int a, int b) {
  if (links[a * devices + b] > 0) return true;
  for (int via = 0; via < devices; ++via) {
    if (links[a * devices + via] > 0 && links[via * devices + b] > 0) return true;
  }
  return false;
}

std::vector<int> joined_all_to_all(int devices) {
  std::vector<int> links(static_cast<std::size_t>(devices) * devices, 1);
  for (int i = 0; i < devices; ++i) links[static_cast<std::size_t>(i) * devices + i] = 0;
  return links;
}

void check_mesh(const IntraNode& intra, int devices, bool has_pcie, const FieldCheck& check) {
  check.within("mesh_links", static_cast<int>(intra.mesh_links.size()), 0, kMaxMeshDevices * kMaxMeshDevices);
  if (intra.mesh_links.size() != static_cast<std::size_t>(devices) * devices)
    check.fail("mesh_links", fmt::format("mesh_links has {} entries", intra.mesh_links.size()),
               fmt::format("expected {} devices x {} devices", devices, devices));
  for (int i = 0; i < devices; ++i) {
    for (int j = 0; j < devices; ++j) {
      const int links = intra.mesh_links[i * devices + j];
      if (links < 0 || links > 1000 || (i == j && links != 0))
        check.fail("mesh_links", fmt::format("{} links between devices {} and {}", links, i, j),
                   "expected none from a device to itself, and no negative count");
      if (links != intra.mesh_links[j * devices + i])
        check.fail("mesh_links", fmt::format("devices {} and {} disagree on their links", i, j),
                   "expected a symmetric matrix");
      if (i != j && !has_pcie && !mesh_joins(intra.mesh_links, devices, i, j))
        check.fail(
            "mesh_links", fmt::format("no path of two links joins devices {} and {}", i, j),
            "expected a connected mesh, or nic.pcie_bandwidth_bytes_per_s for the way through the host");
    }
  }
}

IntraNode read_intra(const proto::NodeType& message, const FieldCheck& node) {
  const proto::IntraNode& from = message.intra();
  const FieldCheck check = node.inside("intra");
  IntraNode intra;
  const int devices = message.devices();
  const bool alone = devices == 1;
  switch (from.kind()) {
    case proto::IntraNode::NVSWITCH:
      intra.kind = IntraKind::nvswitch;
      break;
    case proto::IntraNode::NVLINK_MESH:
      intra.kind = IntraKind::nvlink_mesh;
      break;
    case proto::IntraNode::PCIE:
      intra.kind = IntraKind::pcie;
      break;
    case proto::IntraNode::SHARED_MEMORY:
      intra.kind = IntraKind::shared_memory;
      break;
    default:
      if (!alone || from.kind() != proto::IntraNode::UNSPECIFIED)
        check.fail("kind", "how the devices of a node are joined is not said",
                   "expected NVSWITCH, NVLINK_MESH, PCIE or SHARED_MEMORY");
      intra.kind = IntraKind::pcie;
  }
  intra.bandwidth_bytes_per_s =
      alone ? check.not_negative("bandwidth_bytes_per_s", from.bandwidth_bytes_per_s())
            : check.positive("bandwidth_bytes_per_s", from.bandwidth_bytes_per_s());
  intra.latency_s = check.not_negative("latency_s", from.latency_s());
  intra.in_network_reduction = from.in_network_reduction();
  if (intra.in_network_reduction && intra.kind != IntraKind::nvswitch)
    check.fail("in_network_reduction", "only an NVSwitch reduces in the network", "expected kind: NVSWITCH");
  intra.bridge_bandwidth_bytes_per_s =
      check.not_negative("bridge_bandwidth_bytes_per_s", from.bridge_bandwidth_bytes_per_s());
  if (intra.kind == IntraKind::pcie) {
    intra.devices_per_bridge =
        from.devices_per_bridge() == 0
            ? devices
            : check.within("devices_per_bridge", from.devices_per_bridge(), 1, devices);
    if (intra.devices_per_bridge < devices)
      check.positive("bridge_bandwidth_bytes_per_s", from.bridge_bandwidth_bytes_per_s());
  } else if (from.devices_per_bridge() != 0) {
    check.fail("devices_per_bridge", "devices_per_bridge belongs to kind PCIE", "expected it there only");
  }
  if (intra.kind == IntraKind::nvlink_mesh) {
    intra.mesh_links.assign(from.mesh_links().begin(), from.mesh_links().end());
    if (intra.mesh_links.empty() && devices <= kMaxMeshDevices) intra.mesh_links = joined_all_to_all(devices);
    check_mesh(intra, devices, message.nic().pcie_bandwidth_bytes_per_s() > 0, check);
  } else if (from.mesh_links_size() > 0) {
    check.fail("mesh_links", "mesh_links belongs to kind NVLINK_MESH", "expected it there only");
  }
  return intra;
}

Nic read_nic(const proto::NodeType& message, const FieldCheck& node) {
  const proto::Nic& from = message.nic();
  const FieldCheck check = node.inside("nic");
  Nic nic;
  nic.count = check.within("count", from.count(), 0, kMaxPorts);
  nic.bandwidth_bytes_per_s = nic.count > 0
                                  ? check.positive("bandwidth_bytes_per_s", from.bandwidth_bytes_per_s())
                                  : check.not_negative("bandwidth_bytes_per_s", from.bandwidth_bytes_per_s());
  nic.latency_s = check.not_negative("latency_s", from.latency_s());
  nic.direct = from.direct();
  nic.pcie_bandwidth_bytes_per_s =
      check.not_negative("pcie_bandwidth_bytes_per_s", from.pcie_bandwidth_bytes_per_s());
  const int devices = message.devices();
  if (from.of_device_size() > 0 && from.of_device_size() != (nic.count > 0 ? devices : 0))
    check.fail("of_device", fmt::format("of_device has {} entries", from.of_device_size()),
               nic.count > 0 ? fmt::format("expected one for each of the {} devices", devices)
                             : "expected none: the node has no ports");
  for (const int port : from.of_device()) {
    if (port < 0 || port >= nic.count)
      check.fail("of_device", fmt::format("a device uses port {}", port),
                 fmt::format("expected from 0 to {}", nic.count - 1));
    nic.of_device.push_back(port);
  }
  if (nic.of_device.empty() && nic.count > 0) {
    for (int d = 0; d < devices; ++d) nic.of_device.push_back(d * nic.count / devices);
  }
  return nic;
}

int profile_index(Cluster& cluster, const std::string& name, const FieldCheck& node) {
  node.named("device", name);
  for (std::size_t i = 0; i < cluster.profiles.size(); ++i) {
    if (cluster.profiles[i].name == name) return static_cast<int>(i);
  }
  try {
    cluster.profiles.push_back(catalog_device(name));
  } catch (const UserError& error) {
    node.fail("device", error.what(), "");
  }
  return static_cast<int>(cluster.profiles.size()) - 1;
}

NodeType read_node(const proto::NodeType& from, const FieldCheck& check, Cluster& cluster) {
  NodeType node;
  node.name = from.name();
  node.profile = profile_index(cluster, from.device(), check);
  node.devices = check.within("devices", from.devices(), 1, kMaxDevicesPerNode);
  node.intra = read_intra(from, check);
  node.nic = read_nic(from, check);
  node.shared_cores = check.within("shared_cores", from.shared_cores(), 0, kMaxDevicesPerNode);
  node.host_memory_bytes = check.not_negative("host_memory_bytes", from.host_memory_bytes());
  node.storage_read_bytes_per_s =
      check.not_negative("storage_read_bytes_per_s", from.storage_read_bytes_per_s());
  node.storage_write_bytes_per_s =
      check.not_negative("storage_write_bytes_per_s", from.storage_write_bytes_per_s());
  node.price_usd_per_device_hour =
      check.not_negative("price_usd_per_device_hour", from.price_usd_per_device_hour());
  if (node.price_usd_per_device_hour == 0)
    node.price_usd_per_device_hour = cluster.profiles[node.profile].price_usd_per_hour;
  node.host_power_w = check.not_negative("host_power_w", from.host_power_w());
  node.hosts.assign(from.hosts().begin(), from.hosts().end());
  return node;
}

void read_groups(const proto::Cluster& message, const FieldCheck& check, Cluster& cluster) {
  if (message.groups_size() == 0)
    check.fail("groups", "the cluster has no nodes", "expected at least one group of nodes");
  double devices = 0;
  std::int64_t nodes = 0;
  for (int g = 0; g < message.groups_size(); ++g) {
    const FieldCheck at = check.inside("groups", g);
    NodeGroup group;
    group.node = read_node(message.groups(g).node(), at.inside("node"), cluster);
    group.count = at.within("count", message.groups(g).count(), 1, kMaxNodes);
    nodes += group.count;
    devices += static_cast<double>(group.count) * group.node.devices;
    if (nodes > kMaxNodes || devices > kMaxDevices)
      at.fail("count", fmt::format("{} nodes with {} devices are too many", nodes, devices),
              fmt::format("expected at most {} nodes and {} devices", kMaxNodes, kMaxDevices));
    if (!group.node.hosts.empty() && static_cast<int>(group.node.hosts.size()) != group.count)
      at.inside("node").fail("hosts",
                             fmt::format("{} host names for {} nodes", group.node.hosts.size(), group.count),
                             "expected one a node, or none");
    cluster.groups.push_back(std::move(group));
  }
  for (int g = 0; nodes > 1 && g < message.groups_size(); ++g) {
    if (cluster.groups[g].node.nic.count == 0)
      check.inside("groups", g)
          .inside("node")
          .fail("nic",
                fmt::format("the cluster has {} nodes, but those of group {} have no network port", nodes, g),
                "expected nic.count of at least 1: the fabric must join all nodes");
  }
}

FabricKind read_fabric_kind(const proto::Fabric& from, bool alone, const FieldCheck& check) {
  switch (from.kind()) {
    case proto::Fabric::STAR:
      return FabricKind::star;
    case proto::Fabric::FAT_TREE:
      return FabricKind::fat_tree;
    case proto::Fabric::RAIL_FAT_TREE:
      return FabricKind::rail_fat_tree;
    case proto::Fabric::TORUS:
      return FabricKind::torus;
    case proto::Fabric::DRAGONFLY:
      return FabricKind::dragonfly;
    default:
      if (alone && from.kind() == proto::Fabric::UNSPECIFIED) return FabricKind::star;
      check.fail("kind", "the fabric between the nodes is not said, so they are not connected",
                 "expected STAR, FAT_TREE, RAIL_FAT_TREE, TORUS or DRAGONFLY");
  }
}

Transport read_transport(const proto::Fabric& from, bool alone, const FieldCheck& check) {
  switch (from.transport()) {
    case proto::Fabric::INFINIBAND:
      return Transport::infiniband;
    case proto::Fabric::ROCE:
      return Transport::roce;
    case proto::Fabric::TCP:
      return Transport::tcp;
    case proto::Fabric::HOST:
      if (!alone)
        check.fail("transport", "transport HOST joins the processes of one host",
                   "expected INFINIBAND, ROCE or TCP");
      return Transport::host;
    default:
      if (alone && from.transport() == proto::Fabric::TRANSPORT_UNSPECIFIED) return Transport::host;
      check.fail("transport", "the fabric's transport is not said", "expected INFINIBAND, ROCE or TCP");
  }
}

void read_torus(const proto::Fabric& from, int nodes, const FieldCheck& check, Fabric& fabric) {
  if (from.torus_size() == 0 || from.torus_size() > kMaxTorusDimensions)
    check.fail("torus", fmt::format("a torus of {} dimensions", from.torus_size()),
               fmt::format("expected from 1 to {}", kMaxTorusDimensions));
  double product = 1;
  for (const int size : from.torus()) {
    product *= check.within("torus", size, 1, kMaxNodes);
    fabric.torus.push_back(size);
  }
  if (product != nodes)
    check.fail("torus", fmt::format("the torus has {} places for {} nodes", product, nodes),
               "expected dimensions whose product is the number of nodes");
}

void read_dragonfly(const proto::Fabric& from, int nodes, const FieldCheck& check, Fabric& fabric) {
  fabric.groups = check.within("groups", from.groups(), 1, kMaxNodes);
  fabric.routers = check.within("routers", from.routers(), 1, kMaxNodes);
  fabric.nodes_per_router = check.within("nodes_per_router", from.nodes_per_router(), 1, kMaxNodes);
  const double per_group = static_cast<double>(fabric.routers) * fabric.nodes_per_router;
  if (nodes > per_group * fabric.groups || nodes <= per_group * (fabric.groups - 1))
    check.fail("groups",
               fmt::format("a dragonfly of {} groups of {} routers with {} nodes each, for {} nodes",
                           fabric.groups, fabric.routers, fabric.nodes_per_router, nodes),
               "expected room for all of them and no empty group");
  if (fabric.groups > 1) check.positive("global_bandwidth_bytes_per_s", from.global_bandwidth_bytes_per_s());
}

Fabric read_fabric(const proto::Cluster& message, const FieldCheck& cluster_check, int nodes) {
  const proto::Fabric& from = message.fabric();
  const FieldCheck check = cluster_check.inside("fabric");
  const bool alone = nodes == 1;
  Fabric fabric;
  fabric.kind = read_fabric_kind(from, alone, check);
  fabric.transport = read_transport(from, alone, check);
  fabric.switch_latency_s = check.not_negative("switch_latency_s", from.switch_latency_s());
  fabric.nodes_per_leaf = check.within("nodes_per_leaf", from.nodes_per_leaf(), 0, kMaxNodes);
  if (fabric.kind == FabricKind::fat_tree || fabric.kind == FabricKind::rail_fat_tree)
    check.within("nodes_per_leaf", from.nodes_per_leaf(), 1, kMaxNodes);
  fabric.oversubscription =
      from.oversubscription() == 0 ? 1 : check.positive("oversubscription", from.oversubscription());
  fabric.link_bandwidth_bytes_per_s =
      check.not_negative("link_bandwidth_bytes_per_s", from.link_bandwidth_bytes_per_s());
  fabric.global_bandwidth_bytes_per_s =
      check.not_negative("global_bandwidth_bytes_per_s", from.global_bandwidth_bytes_per_s());
  if (fabric.kind == FabricKind::torus) read_torus(from, nodes, check, fabric);
  if (fabric.kind == FabricKind::dragonfly) read_dragonfly(from, nodes, check, fabric);
  return fabric;
}

CommunicationProfile read_communication(const proto::Cluster& message, const FieldCheck& cluster_check,
                                        const Cluster& cluster) {
  const proto::CommunicationProfile& from = message.communication();
  const FieldCheck check = cluster_check.inside("communication");
  CommunicationLibrary library = cluster.profiles[cluster.groups[0].node.profile].kind == DeviceKind::gpu
                                     ? CommunicationLibrary::nccl
                                     : CommunicationLibrary::mpi;
  if (from.library() == "nccl") {
    library = CommunicationLibrary::nccl;
  } else if (from.library() == "mpi") {
    library = CommunicationLibrary::mpi;
  } else if (!from.library().empty()) {
    check.fail("library", fmt::format("unknown communication library '{}'", from.library()),
               "expected nccl or mpi");
  }
  CommunicationProfile profile = default_communication(library, cluster.fabric.transport);
  if (!from.source().empty()) profile.source = from.source();
  profile.calibrated = from.calibrated();
  const auto take = [&](std::string_view field, double given, double& value) {
    if (check.not_negative(field, given) > 0) value = given;
  };
  take("point_to_point_latency_s", from.point_to_point_latency_s(), profile.point_to_point_latency_s);
  take("point_to_point_bytes_per_s", from.point_to_point_bytes_per_s(), profile.point_to_point_bytes_per_s);
  take("reduce_bytes_per_s", from.reduce_bytes_per_s(), profile.reduce_bytes_per_s);
  take("network_latency_s", from.network_latency_s(), profile.network_latency_s);
  take("collective_overhead_s", from.collective_overhead_s(), profile.collective_overhead_s);
  take("eager_bytes", from.eager_bytes(), profile.eager_bytes);
  take("network_eager_bytes", from.network_eager_bytes(), profile.network_eager_bytes);
  take("network_processor_s_per_byte", from.network_processor_s_per_byte(),
       profile.network_processor_s_per_byte);
  take("network_flow_spread", from.network_flow_spread(), profile.network_flow_spread);
  if (from.network_efficiency() != 0)
    profile.network_exchange_efficiency = profile.network_efficiency =
        check.fraction("network_efficiency", from.network_efficiency());
  if (from.network_exchange_efficiency() != 0)
    profile.network_exchange_efficiency =
        check.fraction("network_exchange_efficiency", from.network_exchange_efficiency());
  if (from.intra_efficiency() != 0)
    profile.intra_efficiency = check.fraction("intra_efficiency", from.intra_efficiency());
  for (int i = 0; i < from.message_times_size(); ++i) {
    const FieldCheck at = check.inside("message_times", i);
    const proto::MessageTime& time = from.message_times(i);
    const MessageTime read = {at.positive("bytes", time.bytes()), at.positive("one_way_s", time.one_way_s()),
                              at.positive("exchange_s", time.exchange_s())};
    if (!profile.message_times.empty() && read.bytes <= profile.message_times.back().bytes)
      at.fail("bytes", "message_times are not in ascending order",
              "expected more bytes than the entry before");
    profile.message_times.push_back(read);
  }
  return profile;
}

Override read_override(const proto::Override& from, const FieldCheck& check, const Cluster& cluster) {
  Override o;
  o.node = check.within("node", from.node(), 0, cluster.nodes() - 1);
  const NodeType& node = cluster.node_type(o.node);
  if (from.target() == "device") {
    o.target = OverrideTarget::device;
    o.device = check.within("device", from.device(), 0, node.devices - 1);
  } else if (from.target() == "nic") {
    o.target = OverrideTarget::nic;
    if (node.nic.count == 0) check.fail("target", "the node has no network port", "expected device or node");
    o.port = check.within("port", from.port(), 0, node.nic.count - 1);
  } else if (from.target() == "node") {
    o.target = OverrideTarget::node;
  } else {
    check.fail("target", fmt::format("unknown target '{}'", from.target()), "expected device, nic or node");
  }
  if (o.target != OverrideTarget::device && from.device() != 0)
    check.fail("device", "a device is given, but the target is another", "expected target: \"device\"");
  if (o.target != OverrideTarget::nic && from.port() != 0)
    check.fail("port", "a port is given, but the target is another", "expected target: \"nic\"");
  if (o.target == OverrideTarget::nic) {
    if (!(from.speed() >= 0 && from.speed() <= 1))
      check.fail("speed", fmt::format("the speed is {}", from.speed()),
                 "expected a fraction from 0 (dead) to 1");
  } else if (!(from.speed() > 0 && from.speed() <= 1)) {
    check.fail("speed", fmt::format("the speed is {}", from.speed()),
               "expected a fraction above 0 and up to 1: leave a dead device or node out of the cluster");
  }
  o.speed = from.speed();
  return o;
}

void read_overrides(const proto::Cluster& message, const FieldCheck& check, Cluster& cluster) {
  std::set<std::tuple<OverrideTarget, int, int>> seen;
  for (int i = 0; i < message.overrides_size(); ++i) {
    const FieldCheck at = check.inside("overrides", i);
    const Override o = read_override(message.overrides(i), at, cluster);
    if (!seen.insert({o.target, o.node, o.target == OverrideTarget::nic ? o.port : o.device}).second)
      at.fail("target", "two overrides of one thing", "expected one");
    cluster.overrides.push_back(o);
  }
}

void write_node(const Cluster& cluster, const NodeType& node, proto::NodeType* to) {
  to->set_name(node.name);
  to->set_device(cluster.profiles[node.profile].name);
  to->set_devices(node.devices);
  auto* intra = to->mutable_intra();
  intra->set_kind(static_cast<proto::IntraNode::Kind>(static_cast<int>(node.intra.kind) + 1));
  intra->set_bandwidth_bytes_per_s(node.intra.bandwidth_bytes_per_s);
  intra->set_latency_s(node.intra.latency_s);
  for (const int links : node.intra.mesh_links) intra->add_mesh_links(links);
  intra->set_devices_per_bridge(node.intra.devices_per_bridge);
  intra->set_bridge_bandwidth_bytes_per_s(node.intra.bridge_bandwidth_bytes_per_s);
  intra->set_in_network_reduction(node.intra.in_network_reduction);
  auto* nic = to->mutable_nic();
  nic->set_count(node.nic.count);
  nic->set_bandwidth_bytes_per_s(node.nic.bandwidth_bytes_per_s);
  nic->set_latency_s(node.nic.latency_s);
  for (const int port : node.nic.of_device) nic->add_of_device(port);
  nic->set_direct(node.nic.direct);
  nic->set_pcie_bandwidth_bytes_per_s(node.nic.pcie_bandwidth_bytes_per_s);
  to->set_shared_cores(node.shared_cores);
  to->set_host_memory_bytes(node.host_memory_bytes);
  to->set_storage_read_bytes_per_s(node.storage_read_bytes_per_s);
  to->set_storage_write_bytes_per_s(node.storage_write_bytes_per_s);
  to->set_price_usd_per_device_hour(node.price_usd_per_device_hour);
  to->set_host_power_w(node.host_power_w);
  for (const std::string& host : node.hosts) to->add_hosts(host);
}

void write_fabric(const Fabric& fabric, proto::Fabric* to) {
  to->set_kind(static_cast<proto::Fabric::Kind>(static_cast<int>(fabric.kind) + 1));
  to->set_transport(static_cast<proto::Fabric::Transport>(static_cast<int>(fabric.transport) + 1));
  to->set_switch_latency_s(fabric.switch_latency_s);
  to->set_nodes_per_leaf(fabric.nodes_per_leaf);
  to->set_oversubscription(fabric.oversubscription);
  to->set_link_bandwidth_bytes_per_s(fabric.link_bandwidth_bytes_per_s);
  for (const int size : fabric.torus) to->add_torus(size);
  to->set_groups(fabric.groups);
  to->set_routers(fabric.routers);
  to->set_nodes_per_router(fabric.nodes_per_router);
  to->set_global_bandwidth_bytes_per_s(fabric.global_bandwidth_bytes_per_s);
}

void write_communication(const CommunicationProfile& profile, proto::CommunicationProfile* to) {
  to->set_library(profile.library == CommunicationLibrary::nccl ? "nccl" : "mpi");
  to->set_source(profile.source);
  to->set_calibrated(profile.calibrated);
  to->set_point_to_point_latency_s(profile.point_to_point_latency_s);
  to->set_point_to_point_bytes_per_s(profile.point_to_point_bytes_per_s);
  to->set_reduce_bytes_per_s(profile.reduce_bytes_per_s);
  to->set_network_latency_s(profile.network_latency_s);
  to->set_network_efficiency(profile.network_efficiency);
  to->set_intra_efficiency(profile.intra_efficiency);
  to->set_collective_overhead_s(profile.collective_overhead_s);
  to->set_eager_bytes(profile.eager_bytes);
  to->set_network_exchange_efficiency(profile.network_exchange_efficiency);
  to->set_network_eager_bytes(profile.network_eager_bytes);
  to->set_network_processor_s_per_byte(profile.network_processor_s_per_byte);
  to->set_network_flow_spread(profile.network_flow_spread);
  for (const MessageTime& time : profile.message_times) {
    proto::MessageTime* entry = to->add_message_times();
    entry->set_bytes(time.bytes);
    entry->set_one_way_s(time.one_way_s);
    entry->set_exchange_s(time.exchange_s);
  }
}

}  // namespace

Cluster cluster_from_proto(const proto::Cluster& message, std::string_view file, std::string_view text) {
  return cluster_from_proto(message, FieldCheck(file, text, *proto::Cluster::descriptor()));
}

Cluster cluster_from_proto(const proto::Cluster& message, const FieldCheck& check) {
  Cluster cluster;
  cluster.name = check.named("name", message.name());
  cluster.description = message.description();
  cluster.source = message.source();
  for (int i = 0; i < message.devices_size(); ++i) {
    const FieldCheck at = check.inside("devices", i);
    cluster.profiles.push_back(device_profile_from_proto(message.devices(i), at));
    for (int j = 0; j < i; ++j) {
      if (cluster.profiles[j].name == cluster.profiles[i].name)
        at.fail("name", fmt::format("two device profiles are named '{}'", cluster.profiles[i].name),
                "expected one");
    }
  }
  read_groups(message, check, cluster);
  cluster.fabric = read_fabric(message, check, cluster.nodes());
  cluster.communication = read_communication(message, check, cluster);
  read_overrides(message, check, cluster);
  cluster.shared_cores = check.within("shared_cores", message.shared_cores(), 0, kMaxDevicesPerNode);
  return cluster;
}

Cluster rechecked(const Cluster& cluster, std::string_view file) {
  proto::Cluster message;
  to_proto(cluster, &message);
  return cluster_from_proto(message, file, {});
}

void to_proto(const Cluster& cluster, proto::Cluster* message) {
  message->Clear();
  message->set_name(cluster.name);
  message->set_description(cluster.description);
  message->set_source(cluster.source);
  for (const NodeGroup& group : cluster.groups) {
    auto* to = message->add_groups();
    write_node(cluster, group.node, to->mutable_node());
    to->set_count(group.count);
  }
  write_fabric(cluster.fabric, message->mutable_fabric());
  for (const DeviceProfile& profile : cluster.profiles) to_proto(profile, message->add_devices());
  write_communication(cluster.communication, message->mutable_communication());
  message->set_shared_cores(cluster.shared_cores);
  for (const Override& o : cluster.overrides) {
    auto* to = message->add_overrides();
    to->set_node(o.node);
    to->set_device(o.device);
    to->set_port(o.port);
    to->set_target(o.target == OverrideTarget::device ? "device"
                   : o.target == OverrideTarget::nic  ? "nic"
                                                      : "node");
    to->set_speed(o.speed);
  }
}

}  // namespace orrery
