#include "evidence/words/collective_machines.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "evidence/words/machines.h"
#include "evidence/words/pattern.h"
#include "evidence/words/rules.h"
#include "proto/evidence.pb.h"
#include "topologies/named_network.h"
#include "topologies/readers/catalog.h"

namespace orrery::evidence {
namespace {

// Beyond any machine: a mesh is described by a number for every pair, a machine by every device.
constexpr int kMostOfMesh = 64, kMostDevices = 1 << 20;

IntraKind kind_from(const std::string& name) {
  if (name == "nvlink-mesh") return IntraKind::nvlink_mesh;
  if (name == "nvswitch") return IntraKind::nvswitch;
  if (name == "pcie") return IntraKind::pcie;
  throw InternalError("evidence/data/machines.textproto has the link '" + name + "'");
}

// Links between pairs of devices: the catalog's where its node is as large, else every pair joined alike.
void join_mesh(const proto::PublishedDevice& device, const proto::DeviceLink& link, NodeType* node) {
  if (!device.cluster().empty()) {
    const NodeType known = load_cluster(device.cluster()).groups.front().node;
    if (known.devices == node->devices && !known.intra.mesh_links.empty()) {
      node->intra.mesh_links = known.intra.mesh_links;
      return;
    }
  }
  join_alike(node, node->devices == 2 ? 2 : node->devices == 4 ? link.links_of_four() : 1);
}

NodeType node_of(const StatedMachine& machine, const proto::PublishedDevice& device,
                 const proto::DeviceLink& link, int devices) {
  NodeType node;
  node.name = machine.gpu;
  node.devices = devices;
  node.intra.kind = kind_from(link.kind());
  node.intra.bandwidth_bytes_per_s = link.bandwidth_bytes_per_s();
  node.intra.latency_s = node.intra.kind == IntraKind::pcie ? 2e-6 : 1e-6;
  node.intra.in_network_reduction = link.in_network_reduction();
  if (node.intra.kind == IntraKind::nvlink_mesh) join_mesh(device, link, &node);
  if (link.bridge_bandwidth_bytes_per_s() > 0) {
    node.intra.devices_per_bridge = 2;
    node.intra.bridge_bandwidth_bytes_per_s = link.bridge_bandwidth_bytes_per_s();
  }
  if (machine.intra_share > 0 && node.intra.kind == IntraKind::pcie)
    node.intra.bandwidth_bytes_per_s *= machine.intra_share;
  return node;
}

const proto::PublishedNetwork* find_fabric(const std::string& words) {
  for (const proto::PublishedNetwork& fabric : published_machines().fabric())
    if (match_pattern(fabric.pattern(), words)) return &fabric;
  return nullptr;
}

// `joined`: nodes of the table in one NVLink domain.
void join_nodes(const proto::PublishedNetwork& fabric, int joined, Cluster* cluster) {
  NodeType& node = cluster->groups.front().node;
  node.nic.count = fabric.ports() * joined;
  node.nic.bandwidth_bytes_per_s = fabric.gigabits() * kBytesPerGigabit;
  // More ports than devices are ganged: a device uses all that are nearest to it.
  if (node.nic.count > node.devices) {
    node.nic.bandwidth_bytes_per_s *= static_cast<double>(node.nic.count) / node.devices;
    node.nic.count = node.devices;
  }
  node.nic.latency_s = fabric.latency_s();
  cluster->fabric.transport = transport_from_name(fabric.transport());
  node.nic.direct = cluster->fabric.transport != Transport::tcp;
  deal_ports(&node);
  cluster->communication.network_efficiency = fabric.efficiency();
}

}  // namespace

std::optional<Cluster> collective_machine(const StatedMachine& machine, std::string* why_not) {
  const proto::PublishedDevice* known = find_device(machine.gpu);
  if (known == nullptr || known->link().empty()) {
    *why_not = "no description of the device '" + machine.gpu + "', or not an NCCL one";
    return std::nullopt;
  }
  const proto::DeviceLink& link = find_link(known->link());
  if (std::max(machine.devices, machine.nodes) > kMostDevices) {
    *why_not = fmt::format("no machine has {} devices", std::max(machine.devices, machine.nodes));
    return std::nullopt;
  }
  int per_node = std::max(1, machine.devices_per_node);
  int nodes = std::max(1, machine.nodes);
  int joined = 1;
  if (link.domain() > 0) {
    // A rack is one node to NCCL's cost model (multi-node NVLink).
    const int domains = (machine.devices + link.domain() - 1) / link.domain();
    joined = std::max(1, machine.devices / domains / per_node);
    per_node = std::max(1, machine.devices / domains);
    nodes = domains;
  }
  per_node = std::max(per_node, (machine.devices + nodes - 1) / nodes);
  const bool mesh = kind_from(link.kind()) == IntraKind::nvlink_mesh;
  if (per_node > (mesh ? kMostOfMesh : kMostDevices)) {
    *why_not = fmt::format("no node joins {} devices by {}", per_node, link.kind());
    return std::nullopt;
  }

  Cluster cluster;
  cluster.name = machine.gpu;
  cluster.communication.library = CommunicationLibrary::nccl;
  DeviceProfile device;
  device.name = machine.gpu;
  device.generation = link.generation();
  cluster.profiles.push_back(device);
  cluster.groups.push_back({node_of(machine, *known, link, per_node), nodes});
  cluster.fabric.transport = Transport::host;
  if (nodes > 1) {
    const proto::PublishedNetwork* fabric = find_fabric(machine.inter_link);
    if (fabric == nullptr) {
      *why_not = "the network between nodes is not stated, or not known: '" + machine.inter_link + "'";
      return std::nullopt;
    }
    join_nodes(*fabric, joined, &cluster);
  }
  return cluster;
}

}  // namespace orrery::evidence
