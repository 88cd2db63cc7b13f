#include "orrery/discover.h"

#include "base/error.h"
#include "base/file.h"
#include "topologies/readers/catalog.h"
#include "topologies/readers/nccl_xml.h"
#include "topologies/readers/nvidia_smi.h"

namespace orrery {

Cluster discover(const DiscoverRequest& request) {
  const bool of_nccl = !request.nccl_topology.empty(), of_nvidia = !request.nvidia_smi.empty();
  if (of_nccl + of_nvidia + request.gpus > 1)
    throw UserError("several machines are to be described",
                    "one of `nccl_topology`, `nvidia_smi` and `gpus`");
  if (!of_nvidia && request.port_bytes_per_s > 0)
    throw UserError("`port_rate` without `nvidia_smi`", "expected `nvidia_smi` beside it");
  if (!of_nvidia && !of_nccl && request.pcie_bytes_per_s > 0)
    throw UserError("`pcie_rate` without a file", "expected `nvidia_smi` or `nccl_topology` beside it");
  if (!request.device.empty()) {
    if (!of_nccl && !of_nvidia && !request.gpus)
      throw UserError("`device` says nothing of this machine's processor cores",
                      "expected `nvidia_smi`, `nccl_topology` or `gpus` beside it");
    catalog_device(request.device);
  }
  if (of_nccl)
    return cluster_from_nccl_topology(
        read_file(request.nccl_topology), request.nccl_topology,
        {.device = request.device, .pcie_bytes_per_s = request.pcie_bytes_per_s});
  if (!of_nvidia && request.gpus && !request.device.empty()) {
    if (std::optional<Cluster> found = discover_gpus(request.device)) return *std::move(found);
  }
  if (!of_nvidia) return request.gpus ? load_cluster("localhost-gpu") : discover_localhost();
  if (request.device.empty())
    throw UserError("`nvidia_smi`: the matrix does not name the GPUs", "`device` (`orrery catalog`)");
  return cluster_from_nvidia_smi(read_file(request.nvidia_smi), request.nvidia_smi,
                                 {.device = request.device,
                                  .port_bytes_per_s = request.port_bytes_per_s,
                                  .pcie_bytes_per_s = request.pcie_bytes_per_s});
}

}  // namespace orrery
