#include "topologies/readers/nvidia_gpus.h"

#include <catch2/catch.hpp>
#include <set>

#include "topologies/readers/catalog.h"

using namespace orrery;

namespace {

std::set<std::string> devices_with_ids() {
  std::set<std::string> devices;
  for (unsigned id = 1; id <= 0xffff; ++id) {
    if (const auto device = device_of({.pci_id = id})) devices.insert(*device);
  }
  return devices;
}

}  // namespace

TEST_CASE("every NVIDIA device of the catalog is known by PCI ids, and none but those") {
  std::set<std::string> known = devices_with_ids();
  // Made for one customer; nobody has published its id.
  CHECK(known.insert("h100-sxm-96g-500w").second);
  std::set<std::string> listed;
  for (const CatalogEntry& entry : catalog_devices()) {
    CAPTURE(entry.name);
    const bool nvidia = catalog_device(entry.name).vendor == "nvidia";
    CHECK((nvidia_gpu(entry.name) != nullptr) == nvidia);
    if (nvidia) listed.insert(entry.name);
  }
  CHECK(known == listed);
}

TEST_CASE("generations of PCIe are those of the devices' profiles and of the catalog's nodes") {
  for (const CatalogEntry& entry : catalog_devices()) {
    const DeviceProfile device = catalog_device(entry.name);
    const NvidiaGpu* gpu = nvidia_gpu(entry.name);
    if (gpu == nullptr || device.host_bandwidth_bytes_per_s > 100e9) continue;  // NVLink-C2C to its host
    if (gpu->pcie_generation == 6) continue;  // to its port; the host's is the fifth
    CAPTURE(entry.name);
    const double host = device.host_bandwidth_bytes_per_s > 0 ? device.host_bandwidth_bytes_per_s : 25e9;
    CHECK(pcie_bytes_per_s(gpu->pcie_generation, 16) == Approx(host).epsilon(0.1));
  }
  for (const CatalogEntry& entry : catalog_clusters()) {
    if (!entry.name.starts_with("dgx-") && !entry.name.starts_with("hgx-") && !entry.name.starts_with("gb"))
      continue;
    const Cluster cluster = load_cluster(entry.name);
    CAPTURE(entry.name);
    const NvidiaGpu* gpu = nvidia_gpu(cluster.profiles[0].name);
    REQUIRE(gpu != nullptr);
    const NodeType& node = cluster.groups[0].node;
    CHECK(pcie_bytes_per_s(gpu->pcie_generation, 16) ==
          Approx(node.nic.pcie_bandwidth_bytes_per_s).epsilon(0.02));
    CHECK(gpu->switch_links * nvlink_bytes_per_s(gpu->compute_capability) ==
          Approx(node.intra.bandwidth_bytes_per_s));
  }
}
