// A node of NVIDIA GPUs from the facts that NCCL's topology dump, `nvidia-smi topo -m` and NVML know of it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "topologies/cluster.h"

namespace orrery {

// Links between devices as each end counts them (devices x devices), made equal: the two ends may disagree
// where a dump was cut, and the fewer are sure. Empty where no two are joined.
std::vector<int> agreed_links(std::vector<int> links, int devices);

struct GpuNode {
  std::string device;  // of the catalog
  int devices = 0;
  int switch_links = 0;           // NVLinks from each device to NVSwitches; 0: none
  std::vector<int> mesh_links;    // devices x devices NVLinks between devices; empty: none
  double pcie_bytes_per_s = 0;    // of one device
  std::vector<int> host_bridge;   // by device: those of one value meet below the processors' interconnect
  double bridge_bytes_per_s = 0;  // into that interconnect
  double port_bytes_per_s = 0;    // of one network port
  bool direct = false;            // GPUDirect RDMA
  bool infiniband = false;
  std::vector<std::vector<int>> distance;  // by device and port: the smaller, the nearer
  std::vector<std::string> assumed;        // what the source does not say; it joins the cluster's description
};

// One node. Every device takes its nearest port; of equally near ones that which the fewest devices have
// taken, then the lowest. The fabric is a star of non-blocking switches, which these sources know nothing
// about: edit it. Throws UserError(file, 0, …) where the facts contradict each other.
Cluster cluster_of_gpus(const GpuNode& node, const std::string& name, const std::string& source,
                        std::string_view file);

}  // namespace orrery
