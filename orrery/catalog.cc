// What is known by name, with what people compare.
#include <algorithm>
#include <array>

#include "orrery/orrery.h"
#include "proto/device_profile.pb.h"
#include "topologies/named_network.h"

namespace orrery {
namespace {

CatalogWorkload figures_of(const WorkloadEntry& entry) {
  CatalogWorkload result;
  result.name = entry.name;
  result.description = entry.description;
  const Description described = describe(load_workload(entry.name));
  result.parameters = described.parameters;
  result.active_parameters = described.active_parameters;
  result.layers = described.workload.layers;
  result.seq_len = described.seq_len;
  result.forward_flops = described.forward_flops;
  return result;
}

CatalogDevice figures_of(const CatalogEntry& entry) {
  CatalogDevice result;
  static_cast<CatalogEntry&>(result) = entry;
  const DeviceProfile device = catalog_device(entry.name);
  result.memory_bytes = device.memory_bytes;
  result.memory_bandwidth_bytes_per_s = device.memory_bandwidth_bytes_per_s;
  for (const DType type : {DType::fp32, DType::tf32, DType::fp16, DType::bf16, DType::fp8, DType::fp4})
    if (const double peak = device.peak_flops_per_s[static_cast<std::size_t>(type)]; peak > 0)
      result.peak_flops_per_s.emplace_back(type, peak);
  result.price_usd_per_hour = device.price_usd_per_hour;
  if (device.price_usd_per_hour > 0) result.price_as_of = device.price_as_of;
  return result;
}

// Machines that are to be discovered have none.
CatalogCluster figures_of(const CatalogEntry& entry, const std::vector<CatalogDevice>& devices) {
  CatalogCluster result;
  static_cast<CatalogEntry&>(result) = entry;
  if (entry.name.starts_with("localhost")) return result;
  const Cluster cluster = load_cluster(entry.name);
  const NodeType& node = cluster.groups.front().node;
  const DeviceProfile& device = cluster.profiles[static_cast<std::size_t>(node.profile)];
  result.device = device.name;
  result.devices = node.devices;
  result.memory_bytes = device.memory_bytes;
  result.link_bytes_per_s = node.intra.bandwidth_bytes_per_s;
  result.network_bytes_per_s = node.nic.count * node.nic.bandwidth_bytes_per_s;
  result.price_usd_per_device_hour = node.price_usd_per_device_hour;
  const auto at = std::find_if(devices.begin(), devices.end(),
                               [&](const CatalogDevice& known) { return known.name == device.name; });
  if (at != devices.end() && at->price_usd_per_hour == node.price_usd_per_device_hour)
    result.price_as_of = at->price_as_of;
  return result;
}

}  // namespace

Catalog catalog() {
  Catalog result;
  for (const WorkloadEntry& entry : catalog_workloads()) result.workloads.push_back(figures_of(entry));
  for (const CatalogEntry& entry : catalog_devices()) result.devices.push_back(figures_of(entry));
  for (const CatalogEntry& entry : catalog_clusters())
    result.clusters.push_back(figures_of(entry, result.devices));
  result.networks = catalog_networks();
  result.links = catalog_links();
  for (const std::string& name : catalog_runtimes())
    result.runtimes.push_back({name, catalog_runtime(name).description});
  return result;
}

}  // namespace orrery
