#include "evidence/published_machines.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "topologies/readers/catalog.h"

namespace orrery::planner {
namespace {

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

// What a GPU is linked by inside its node. Rates are one direction of one device, from NVIDIA's datasheets:
// NVLink 2: 6 x 25 GB/s, NVLink 3: 12 x 25, NVLink 4: 18 x 25, NVLink 5: 18 x 50; PCIe 4.0 and 5.0 x16:
// what they give to data, as in the catalog of clusters (26.3 of 31.5 GB/s, and twice that).
struct Gpu {
  std::string_view word;
  std::string_view generation;
  IntraKind kind;
  double bandwidth_bytes_per_s;
  bool in_network_reduction;
  int nvlink_domain = 0;  // devices that NVLink joins across nodes of the table; 0: the node
  // Between pairs of PCIe devices under one bridge (fitted: one scalar of that machine); 0: not the
  // bottleneck.
  double bridge_bandwidth_bytes_per_s = 0;
};

constexpr std::array<Gpu, 16> kGpus = {{
    {"V100", "volta", IntraKind::nvlink_mesh, 150e9, false},
    {"A100", "ampere", IntraKind::nvswitch, 300e9, false},
    {"GH-96", "hopper", IntraKind::nvlink_mesh, 450e9, false},
    {"H100", "hopper", IntraKind::nvswitch, 450e9, true},
    {"H200", "hopper", IntraKind::nvswitch, 450e9, true},
    {"h100", "hopper", IntraKind::nvswitch, 450e9, true},
    {"h200", "hopper", IntraKind::nvswitch, 450e9, true},
    {"GB200", "blackwell", IntraKind::nvswitch, 900e9, true, 72},
    {"GB300", "blackwell", IntraKind::nvswitch, 900e9, true, 72},
    {"B200", "blackwell", IntraKind::nvswitch, 900e9, true},
    {"B300", "blackwell", IntraKind::nvswitch, 900e9, true},
    {"RTX 2080 Ti", "volta", IntraKind::nvlink_mesh, 50e9, false},
    {"RTX 4090", "ada", IntraKind::pcie, 26.3e9, false},
    {"RTX 5090", "blackwell", IntraKind::pcie, 52.6e9, false},
    {"RTX PRO 6000", "blackwell", IntraKind::pcie, 52.6e9, false, 0, 29e9},
    {"L40S", "ada", IntraKind::pcie, 26.3e9, false},
}};

const Gpu* gpu_of(const std::string& name) {
  for (const Gpu& gpu : kGpus) {
    if (has(name, gpu.word)) return &gpu;
  }
  return nullptr;
}

// Links between pairs of GPUs.
std::vector<int> mesh_of(const Gpu& gpu, int devices) {
  if (gpu.generation == "volta" && devices == 8)
    return load_cluster("dgx-v100-32g").groups.front().node.intra.mesh_links;
  // Every pair joined alike: 4 x V100 (Jean Zay), 4 x GH200, 2 x RTX 2080 Ti.
  const int each = devices == 2 ? 2 : devices == 4 ? (gpu.generation == "hopper" ? 6 : 2) : 1;
  std::vector<int> links(static_cast<std::size_t>(devices) * devices, each);
  for (int device = 0; device < devices; ++device)
    links[static_cast<std::size_t>(device) * (devices + 1)] = 0;
  return links;
}

// A network as its rows show it. `efficiency`: the fraction of the nominal rate that the longest messages of
// these very rows reach (fitted: one scalar a fabric); latency: one port, typical of the transport.
struct Wire {
  std::string_view word;
  int ports;
  double port_bytes_per_s;
  Transport transport;
  double latency_s;
  double efficiency;
};

constexpr std::array<Wire, 10> kWires = {{
    {"8x200Gb/s HDR IB", 8, 25e9, Transport::infiniband, 2e-6, 0.65},
    {"4x200Gb HDR IB", 4, 25e9, Transport::infiniband, 2e-6, 0.95},
    {"32x100Gb EFA", 32, 12.5e9, Transport::roce, 10e-6, 0.95},
    {"EFAv3", 16, 25e9, Transport::roce, 10e-6, 0.95},
    {"1x100Gb EFA", 1, 12.5e9, Transport::tcp, 15e-6, 0.70},
    {"16x100Gb RoCE", 16, 12.5e9, Transport::roce, 3e-6, 0.95},
    {"8x400Gb RoCE", 8, 50e9, Transport::roce, 3e-6, 0.95},
    {"Quantum-X800", 4, 50e9, Transport::infiniband, 2e-6, 0.95},
    {"RoCE between racks", 4, 50e9, Transport::roce, 3e-6, 0.95},
    {"Omni-Path", 1, 12.5e9, Transport::infiniband, 2e-6, 0.55},
}};

}  // namespace

std::optional<Cluster> published_machine(const PublishedMachine& machine, std::string* why_not) {
  const Gpu* gpu = gpu_of(machine.gpu);
  if (gpu == nullptr) {
    *why_not = "no description of the device '" + machine.gpu + "', or not an NCCL one";
    return std::nullopt;
  }
  int per_node = std::max(1, machine.devices_per_node);
  int nodes = std::max(1, machine.nodes);
  int joined = 1;  // nodes of the table in one NVLink domain
  if (gpu->nvlink_domain > 0) {
    // An NVL72 rack is one node to NCCL's cost model (multi-node NVLink).
    const int domains = (machine.devices + gpu->nvlink_domain - 1) / gpu->nvlink_domain;
    joined = std::max(1, machine.devices / domains / per_node);
    per_node = std::max(1, machine.devices / domains);
    nodes = domains;
  }
  per_node = std::max(per_node, (machine.devices + nodes - 1) / nodes);

  NodeType node;
  node.name = machine.gpu;
  node.devices = per_node;
  node.intra.kind = gpu->kind;
  node.intra.bandwidth_bytes_per_s = gpu->bandwidth_bytes_per_s;
  node.intra.latency_s = gpu->kind == IntraKind::pcie ? 2e-6 : 1e-6;
  node.intra.in_network_reduction = gpu->in_network_reduction;
  if (gpu->kind == IntraKind::nvlink_mesh) node.intra.mesh_links = mesh_of(*gpu, per_node);
  if (gpu->kind == IntraKind::pcie) {
    if (gpu->bridge_bandwidth_bytes_per_s > 0) {
      node.intra.devices_per_bridge = 2;
      node.intra.bridge_bandwidth_bytes_per_s = gpu->bridge_bandwidth_bytes_per_s;
    }
    // Without peer-to-peer every message is written to the host's memory and read from it again.
    if (has(machine.intra_link, "P2P disabled")) node.intra.bandwidth_bytes_per_s *= 0.72;
  }

  Cluster cluster;
  cluster.name = machine.gpu;
  cluster.communication.library = CommunicationLibrary::nccl;
  if (nodes > 1) {
    const Wire* wire = nullptr;
    for (const Wire& w : kWires) {
      if (wire == nullptr && has(machine.inter_link, w.word)) wire = &w;
    }
    if (wire == nullptr) {
      *why_not = "the network between nodes is not stated, or not known: '" + machine.inter_link + "'";
      return std::nullopt;
    }
    node.nic.count = wire->ports * joined;
    node.nic.bandwidth_bytes_per_s = wire->port_bytes_per_s;
    // More ports than devices are ganged: a device uses all that are nearest to it.
    if (node.nic.count > per_node) {
      node.nic.bandwidth_bytes_per_s *= static_cast<double>(node.nic.count) / per_node;
      node.nic.count = per_node;
    }
    node.nic.latency_s = wire->latency_s;
    node.nic.direct = wire->transport != Transport::tcp;
    for (int d = 0; d < per_node; ++d) node.nic.of_device.push_back(d * node.nic.count / per_node);
    cluster.fabric.transport = wire->transport;
    cluster.communication.network_efficiency = wire->efficiency;
  } else {
    cluster.fabric.transport = Transport::host;
  }
  DeviceProfile device;
  device.name = machine.gpu;
  device.generation = gpu->generation;
  cluster.profiles.push_back(device);
  cluster.groups.push_back({node, nodes});
  return cluster;
}

}  // namespace orrery::planner
