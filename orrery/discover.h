// This machine as a cluster, or one by what its own tools say.
#pragma once

#include <string>

#include "topologies/cluster.h"
#include "topologies/readers/cluster_file.h"
#include "topologies/readers/discover.h"

namespace orrery {

// At most one of the first three; none: this machine's processor cores.
struct DiscoverRequest {
  bool gpus = false;            // this machine's NVIDIA GPUs
  std::string nccl_topology;    // a file: a node as NCCL saw it
  std::string nvidia_smi;       // a file: a node by what `nvidia-smi topo -m` printed; with it
  std::string device;           // the GPUs, by their catalog name; beside the others what to take theirs for
  double port_bytes_per_s = 0;  // beside nvidia_smi: of one network port; 0: the network is left out
  double pcie_bytes_per_s = 0;  // beside a file: of one GPU, each direction; 0: as device or dump have it
};
// Throws UserError.
Cluster discover(const DiscoverRequest& request);

}  // namespace orrery
