#include "planner/evaluation/hardware.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "topologies/device_catalog.h"
#include "topologies/named_network.h"

namespace orrery::planner {

Cluster with_network_times(Cluster cluster, double times) {
  for (NodeGroup& group : cluster.groups) {
    NodeType& node = group.node;
    node.nic.bandwidth_bytes_per_s *= times;
    node.nic.pcie_bandwidth_bytes_per_s *= times;
    if (node.intra.kind == IntraKind::pcie && node.devices == 1) node.intra.bandwidth_bytes_per_s *= times;
  }
  cluster.fabric.link_bandwidth_bytes_per_s *= times;
  cluster.fabric.global_bandwidth_bytes_per_s *= times;
  return cluster;
}

Cluster with_device_memory_times(Cluster cluster, double times) {
  for (DeviceProfile& device : cluster.profiles) device.memory_bytes *= times;
  return cluster;
}

Cluster with_device_speed_times(Cluster cluster, double times) {
  for (DeviceProfile& device : cluster.profiles) slow_down(device, 1 / times);
  return cluster;
}

Cluster with_price(Cluster cluster, double usd_per_device_hour) {
  for (NodeGroup& group : cluster.groups) group.node.price_usd_per_device_hour = usd_per_device_hour;
  return cluster;
}

Cluster with_device(Cluster cluster, std::string_view name) {
  DeviceProfile device = catalog_device(name);
  if (cluster.groups.size() != 1)
    throw UserError(fmt::format("`device` {}: {} has nodes of several types", name, cluster.name),
                    "expected a cluster with one");
  NodeType& node = cluster.groups.front().node;
  const DeviceProfile& own = cluster.profiles[static_cast<std::size_t>(node.profile)];
  if (device.vendor != own.vendor || device.kind != own.kind)
    throw UserError(
        fmt::format("`device` {}: the nodes of {} join devices of another make", name, cluster.name),
        fmt::format("expected one that could stand in the place of {}", own.name));
  node.price_usd_per_device_hour = device.price_usd_per_hour;
  cluster.profiles = {std::move(device)};
  node.profile = 0;
  cluster.calibration.reset();  // it is of the machine as it was
  return cluster;
}

void slow_down(DeviceProfile& device, double factor) {
  for (double& peak : device.peak_flops_per_s) peak /= factor;
  device.memory_bandwidth_bytes_per_s /= factor;
  for (MatmulModel& model : device.matmul) model.kernel_overhead_s *= factor;
  for (VectorModel& model : device.vector) {
    model.forward_bytes_per_s /= factor;
    model.backward_bytes_per_s /= factor;
  }
  device.reference_s *= factor;
}

const std::vector<HardwareKey>& hardware_keys() {
  constexpr double kLeast = 1e-3, kMost = 1e3;  // beyond that no figure of a profile means anything
  static const std::vector<HardwareKey> keys = {
      {"network", "bandwidth between nodes, times; or a network's name", kLeast, kMost, with_network_times,
       with_network},
      {"intra-node", "bandwidth inside a node, times", kLeast, kMost, with_intra_node_times},
      {"device-memory", "memory of a device, times", kLeast, kMost, with_device_memory_times},
      {"device-speed", "arithmetic and memory bandwidth of a device, times", kLeast, kMost,
       with_device_speed_times},
      {kPriceKey, "USD a device hour", 1e-6, 1e6, with_price, nullptr,
       "0 says that no price is known, in a cluster file"},
  };
  return keys;
}

}  // namespace orrery::planner
