#include "topologies/readers/gpu_node.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/format.h"
#include "topologies/communication_defaults.h"
#include "topologies/readers/catalog.h"
#include "topologies/readers/nvidia_gpus.h"

namespace orrery {
namespace {

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
  const NvidiaGpu* gpu = nvidia_gpu(node.device);
  const double link = nvlink_bytes_per_s(gpu != nullptr ? gpu->compute_capability : 80);  // as NCCL
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
  for (const std::string& assumed : node.assumed) cluster.description += "; " + assumed;
  if (type.nic.count > 0 && node.pcie_bytes_per_s < node.port_bytes_per_s)
    cluster.description += fmt::format("; a port of {} gets what PCIe carries, {}",
                                       human_rate(node.port_bytes_per_s), human_rate(node.pcie_bytes_per_s));
  cluster.communication = default_communication(CommunicationLibrary::nccl, cluster.fabric.transport);
  cluster.groups.push_back({std::move(type), 1});
  return rechecked(cluster, file);
}

}  // namespace orrery
