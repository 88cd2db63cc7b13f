// The matrix that `nvidia-smi topo -m` prints: how the GPUs and network adapters of one node are joined.
#pragma once

#include <string>
#include <string_view>

#include "topologies/cluster.h"

namespace orrery {

// What the matrix does not say.
struct NvidiaSmiFacts {
  std::string device;                // the GPUs, by their catalog name
  double port_bytes_per_s = 0;       // of one network adapter; 0: leave the network out
  double pcie_bytes_per_s = 0;       // of one GPU; 0: sixteen lanes of the device's generation
  double bridge_bytes_per_s = 10e9;  // between processors, as NCCL reckons for Intel's since Skylake
};

// Equal NV# between all GPUs, as many as the device has NVLinks: an NVSwitch; else NV# of a pair are direct
// links; none: PCIe, with GPUs under one host bridge unless SYS parts them. A GPU uses the adapter that is
// nearest (PIX, PXB, PHB, NODE, SYS). Throws UserError(file, line, …), and where
// `device` is none of NVIDIA's.
Cluster cluster_from_nvidia_smi(std::string_view text, std::string_view file, const NvidiaSmiFacts& facts);

}  // namespace orrery
