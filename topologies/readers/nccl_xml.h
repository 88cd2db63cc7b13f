// NCCL's topology dump (NCCL_TOPO_DUMP_FILE, read back by NCCL_TOPO_FILE): one node as NCCL saw it.
#pragma once

#include <string_view>

#include "topologies/cluster.h"

namespace orrery {

// GPUs in the order of their `dev`, by their PCI device id, or by their `sm` where the catalog has not that
// very device; NVLinks to NVSwitches or to each other; PCIe at what NCCL reckons (width x rate); network
// ports with the GPUs nearest to them. Throws UserError(file, line, …): no GPU, GPUs of two kinds, ports of
// two speeds, a device that the catalog has not.
Cluster cluster_from_nccl_topology(std::string_view xml, std::string_view file);

}  // namespace orrery
