// Clusters with figures that can be reckoned with by hand.
#pragma once

#include "topologies/cluster.h"

namespace orrery::test {

// 1 TFLOP/s, 1 GB of memory at 1 TB/s.
inline DeviceProfile round_gpu() {
  DeviceProfile profile;
  profile.name = "gpu";
  profile.peak_flops_per_s[0] = 1e12;
  profile.memory_bytes = 1e9;
  profile.memory_bandwidth_bytes_per_s = 1e12;
  return profile;
}

// `nodes` nodes of `devices` devices on an NVSwitch (100 GB/s, 1 us) with `ports` ports (10 GB/s, 0.5 us,
// PCIe 20 GB/s), device d on port d * ports / devices; switches of 0.1 us.
inline Cluster switched_cluster(int nodes, int devices, int ports) {
  Cluster cluster;
  cluster.name = "test";
  cluster.profiles.push_back(round_gpu());
  NodeType node;
  node.devices = devices;
  node.intra = {.kind = IntraKind::nvswitch, .bandwidth_bytes_per_s = 100e9, .latency_s = 1e-6};
  node.nic = {.count = ports,
              .bandwidth_bytes_per_s = 10e9,
              .latency_s = 0.5e-6,
              .direct = true,
              .pcie_bandwidth_bytes_per_s = 20e9};
  for (int d = 0; d < devices; ++d) node.nic.of_device.push_back(d * ports / devices);
  cluster.groups.push_back({node, nodes});
  cluster.fabric.switch_latency_s = 0.1e-6;
  return cluster;
}

}  // namespace orrery::test
