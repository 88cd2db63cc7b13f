// NCCL's topology dump (NCCL_TOPO_DUMP_FILE, read back by NCCL_TOPO_FILE): one node as NCCL saw it.
#pragma once

#include <string>
#include <string_view>

#include "topologies/cluster.h"

namespace orrery {

// What the reader of a dump knows better.
struct NcclFacts {
  std::string device = {};      // what to take the GPUs for; empty: the catalog's of their PCI device id
  double pcie_bytes_per_s = 0;  // of one GPU; 0: as the dump has it
};

// GPUs in the order of their `dev`; NVLinks to NVSwitches or to each other; PCIe by generation and width, of
// the third where NCCL takes that, too; network ports with the GPUs nearest to them. What was assumed joins
// the description. Throws UserError(file, line, …): no GPU, GPUs of two kinds, ports of two speeds, a GPU
// that the catalog has not.
Cluster cluster_from_nccl_topology(std::string_view xml, std::string_view file, const NcclFacts& facts = {});

}  // namespace orrery
