#include "compare/library.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "cost/host_cost.h"
#include "topologies/communication_defaults.h"
#include "topologies/link_class.h"

namespace orrery::comparison {
namespace {

// Of the cluster's devices, there and back; 0 where their memory is the host's.
double copies_s(double bytes, const Cluster& cluster) {
  double slowest_s = 0;
  for (const NodeGroup& group : cluster.groups) {
    const DeviceProfile& device = cluster.profiles[static_cast<std::size_t>(group.node.profile)];
    if (device.kind != DeviceKind::cpu)
      slowest_s = std::max(slowest_s, 2 * bytes / host_link_bytes_per_s(device, cluster));
  }
  return slowest_s;
}

// The same cluster under MPI. One that is calibrated with it stays as it is.
Cluster under_mpi(Cluster cluster, Transport transport) {
  if (cluster.communication.library == CommunicationLibrary::mpi) return cluster;
  cluster.communication = default_communication(CommunicationLibrary::mpi, transport);
  cluster.fabric.transport = transport;
  return cluster;
}

}  // namespace

void check_library(Library library, const Cluster& cluster) {
  const CommunicationLibrary own = cluster.communication.library;
  if (library == Library::nccl && own != CommunicationLibrary::nccl && own != CommunicationLibrary::rccl)
    throw UserError(
        fmt::format("`library` nccl on {}, whose devices use {}", cluster.name, orrery::name_of(own)),
        "expected auto, mpi or gloo");
}

double all_reduce_s(Library library, double bytes, const GroupShape& shape, const Cluster& cluster,
                    const std::optional<Algorithm>& algorithm) {
  check_library(library, cluster);
  const auto seconds = [&](const GroupShape& over, const Cluster& on, const Algorithm* forced) {
    return plan_collective(CollectiveKind::all_reduce, bytes, over, on, forced).seconds(bytes);
  };
  const Algorithm* asked = algorithm ? &*algorithm : nullptr;
  if (shape.ranks < 2) return 0;
  switch (library) {
    case Library::own:
    case Library::nccl:
      return seconds(shape, cluster, asked);
    case Library::mpi:
      return copies_s(bytes, cluster) + seconds(shape, under_mpi(cluster, cluster.fabric.transport), asked);
    case Library::gloo: {
      if (algorithm && *algorithm != Algorithm::ring)
        throw UserError(fmt::format("`algorithm` {} over Gloo", orrery::name_of(*algorithm)),
                        "expected ring or auto");
      GroupShape over = shape;
      over.inter_bandwidth_bytes_per_s = std::min(over.inter_bandwidth_bytes_per_s, kGlooConnectionBytesPerS);
      const Algorithm ring = Algorithm::ring;
      return copies_s(bytes, cluster) + seconds(over, under_mpi(cluster, Transport::tcp), &ring);
    }
  }
  return 0;
}

}  // namespace orrery::comparison
