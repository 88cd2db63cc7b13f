#include "topologies/readers/gpu_node.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "base/error.h"
#include "topologies/communication_defaults.h"
#include "topologies/readers/catalog.h"

namespace orrery {
namespace {

struct PciId {
  unsigned id;
  std::string_view device;
};
// pci.ids, vendor 10de.
constexpr std::array<PciId, 18> kPciIds = {{{0x15f8, "p100-pcie-16g"},
                                            {0x15f9, "p100-sxm2-16g"},
                                            {0x1db1, "v100-sxm2-16g"},
                                            {0x1db4, "v100-pcie-16g"},
                                            {0x1db5, "v100-sxm2-32g"},
                                            {0x1db6, "v100-pcie-32g"},
                                            {0x1eb8, "t4"},
                                            {0x20b0, "a100-sxm-40g"},
                                            {0x20b2, "a100-sxm-80g"},
                                            {0x20b5, "a100-pcie-80g"},
                                            {0x2330, "h100-sxm-80g"},
                                            {0x2331, "h100-pcie-80g"},
                                            {0x2335, "h200-sxm-141g"},
                                            {0x2684, "rtx-4090"},
                                            {0x26b9, "l40s"},
                                            {0x2901, "b200-sxm-180g"},
                                            {0x2941, "gb200-186g"},
                                            {0x3182, "b300-sxm-288g"}}};

struct Capability {
  int sm;
  std::string_view device;
};
constexpr std::array<Capability, 8> kCapabilities = {{{60, "p100-sxm2-16g"},
                                                      {70, "v100-sxm2-32g"},
                                                      {75, "t4"},
                                                      {80, "a100-sxm-80g"},
                                                      {89, "l40s"},
                                                      {90, "h100-sxm-80g"},
                                                      {100, "b200-sxm-180g"},
                                                      {103, "b300-sxm-288g"}}};

struct Generation {
  std::string_view name;
  int nvlinks;
  double link_bytes_per_s;
};
// Datasheets: P100 160 GB/s both ways, V100 300, A100 600, H100 900, B200 1800.
constexpr std::array<Generation, 5> kGenerations = {{{"pascal", 4, 20e9},
                                                     {"volta", 6, 25e9},
                                                     {"ampere", 12, 25e9},
                                                     {"hopper", 18, 25e9},
                                                     {"blackwell", 18, 50e9}}};

constexpr double kNvlinkLatencyS = 1e-6;  // as in the catalog's clusters
constexpr double kPcieLatencyS = 2e-6;
constexpr double kPortLatencyS = 0.5e-6;

std::vector<int> nearest_ports(const std::vector<std::vector<int>>& distance) {
  std::vector<int> ports;
  std::vector<int> users(distance.empty() ? 0 : distance[0].size(), 0);
  for (const std::vector<int>& of_device : distance) {
    std::size_t best = 0;
    for (std::size_t p = 1; p < of_device.size(); ++p) {
      if (std::pair(of_device[p], users[p]) < std::pair(of_device[best], users[best])) best = p;
    }
    ++users[best];
    ports.push_back(static_cast<int>(best));
  }
  return ports;
}

// Devices of equal bridges, where they stand together in equal numbers; else every device alone.
int devices_per_bridge(const std::vector<int>& bridge) {
  const auto devices = static_cast<int>(bridge.size());
  for (int size = devices; size > 1; --size) {
    if (devices % size != 0) continue;
    bool fits = true;
    for (int d = 1; d < devices && fits; ++d) fits = (bridge[d] == bridge[d - 1]) == (d % size != 0);
    if (fits) return size;
  }
  return 1;
}

IntraNode intra_of(const GpuNode& node, std::string_view generation) {
  IntraNode intra;
  const double link = nvlink_bytes_per_s(generation) > 0 ? nvlink_bytes_per_s(generation) : 25e9;
  if (node.switch_links > 0) {
    intra.kind = IntraKind::nvswitch;
    intra.bandwidth_bytes_per_s = node.switch_links * link;
    intra.latency_s = kNvlinkLatencyS;
    intra.in_network_reduction = generation == "hopper" || generation == "blackwell";
    return intra;
  }
  int widest = 0;
  for (int d = 0; d < node.devices && !node.mesh_links.empty(); ++d) {
    const auto row = node.mesh_links.begin() + static_cast<std::ptrdiff_t>(d) * node.devices;
    widest = std::max(widest, std::accumulate(row, row + node.devices, 0));
  }
  if (widest > 0) {
    intra.kind = IntraKind::nvlink_mesh;
    intra.bandwidth_bytes_per_s = widest * link;
    intra.latency_s = kNvlinkLatencyS;
    intra.mesh_links = node.mesh_links;
    return intra;
  }
  intra.kind = IntraKind::pcie;
  intra.bandwidth_bytes_per_s = node.pcie_bytes_per_s;
  intra.latency_s = kPcieLatencyS;
  intra.devices_per_bridge = node.host_bridge.empty() ? node.devices : devices_per_bridge(node.host_bridge);
  intra.bridge_bandwidth_bytes_per_s = node.bridge_bytes_per_s;
  return intra;
}

}  // namespace

std::optional<std::string> device_of_pci_id(unsigned id) {
  for (const PciId& entry : kPciIds) {
    if (entry.id == id) return std::string(entry.device);
  }
  return std::nullopt;
}

std::optional<std::string> device_of_compute_capability(int sm) {
  for (const Capability& entry : kCapabilities) {
    if (entry.sm == sm) return std::string(entry.device);
  }
  return std::nullopt;
}

std::vector<int> agreed_links(std::vector<int> links, int devices) {
  for (int a = 0; a < devices; ++a)
    for (int b = 0; b < a; ++b) {
      int& ab = links[static_cast<std::size_t>(a) * devices + b];
      int& ba = links[static_cast<std::size_t>(b) * devices + a];
      ab = ba = std::min(ab, ba);
    }
  if (std::none_of(links.begin(), links.end(), [](int count) { return count > 0; })) links.clear();
  return links;
}

int nvlinks_of(std::string_view generation) {
  for (const Generation& entry : kGenerations) {
    if (entry.name == generation) return entry.nvlinks;
  }
  return 0;
}

double nvlink_bytes_per_s(std::string_view generation) {
  for (const Generation& entry : kGenerations) {
    if (entry.name == generation) return entry.link_bytes_per_s;
  }
  return 0;
}

Cluster cluster_of_gpus(const GpuNode& node, const std::string& name, const std::string& source,
                        std::string_view file) {
  Cluster cluster;
  cluster.name = name;
  cluster.source = source;
  cluster.profiles.push_back(catalog_device(node.device));
  const DeviceProfile& profile = cluster.profiles[0];
  NodeType type;
  type.name = name;
  type.devices = node.devices;
  type.intra = intra_of(node, profile.generation);
  type.price_usd_per_device_hour = profile.price_usd_per_hour;
  type.nic.pcie_bandwidth_bytes_per_s = node.pcie_bytes_per_s;
  if (node.port_bytes_per_s > 0 && !node.distance.empty() && !node.distance[0].empty()) {
    type.nic.count = static_cast<int>(node.distance[0].size());
    type.nic.bandwidth_bytes_per_s = node.port_bytes_per_s;
    type.nic.latency_s = kPortLatencyS;
    type.nic.direct = node.direct;
    type.nic.of_device = nearest_ports(node.distance);
    cluster.fabric.transport = node.infiniband ? Transport::infiniband : Transport::tcp;
  } else {
    cluster.fabric.transport = Transport::host;
  }
  cluster.description = fmt::format(
      "one node of {} {}, {} network ports; its fabric is assumed to be one "
      "non-blocking switch",
      node.devices, node.device, type.nic.count);
  cluster.communication = default_communication(CommunicationLibrary::nccl, cluster.fabric.transport);
  cluster.groups.push_back({std::move(type), 1});
  return rechecked(cluster, file);
}

}  // namespace orrery
