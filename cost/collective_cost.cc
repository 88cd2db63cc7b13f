#include "cost/collective_cost.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/parse.h"
#include "base/suggest.h"
#include "cost/hierarchical_model.h"
#include "cost/mpi_model.h"
#include "cost/nccl_model.h"

namespace orrery {
namespace {

constexpr std::array<std::pair<Algorithm, std::string_view>, 10> kAlgorithms = {{
    {Algorithm::ring, "ring"},
    {Algorithm::tree, "tree"},
    {Algorithm::nvls, "nvls"},
    {Algorithm::nvls_tree, "nvls-tree"},
    {Algorithm::pairwise, "pairwise"},
    {Algorithm::recursive_doubling, "recursive-doubling"},
    {Algorithm::direct, "direct"},
    {Algorithm::pat, "pat"},
    {Algorithm::binomial, "binomial"},
}};

}  // namespace

std::string_view name_of(Algorithm algorithm) {
  for (const auto& [value, name] : kAlgorithms) {
    if (value == algorithm) return name;
  }
  return "unknown";
}

std::string_view name_of(Protocol protocol) {
  switch (protocol) {
    case Protocol::ll:
      return "LL";
    case Protocol::ll128:
      return "LL128";
    case Protocol::simple:
      return "Simple";
    case Protocol::mpi_eager:
      return "eager";
    case Protocol::mpi_rendezvous:
      return "rendezvous";
  }
  return "unknown";
}

Algorithm algorithm_from_name(std::string_view wanted) {
  std::vector<std::string> known = {"auto"};
  for (const auto& [value, name] : kAlgorithms) {
    if (name == lower_case(wanted)) return value;
    if (!name.empty()) known.emplace_back(name);
  }
  throw UserError("unknown collective algorithm '" + std::string(wanted) + "'", suggestion(wanted, known));
}

CollectivePlan plan_collective(CollectiveKind kind, double bytes, const GroupShape& shape,
                               const Cluster& cluster, const Algorithm* forced) {
  ORRERY_CHECK(bytes >= 0, "a collective of negative size");
  if (shape.ranks <= 1) return {};
  const CommunicationLibrary library = cluster.communication.library;
  if (library == CommunicationLibrary::mpi) return mpi_collective(kind, bytes, shape, cluster, forced);
  return library_model(library).tuner ? nccl_collective(kind, bytes, shape, cluster, forced)
                                      : hierarchical_collective(kind, bytes, shape, cluster, forced);
}

CollectivePlan plan_broadcasts(double bytes, int tensors, const GroupShape& shape, const Cluster& cluster) {
  if (shape.ranks <= 1) return {};
  const int turns = std::clamp(tensors, 1, shape.ranks);
  CollectivePlan plan = plan_collective(CollectiveKind::broadcast, bytes / turns, shape, cluster);
  plan.latency_s *= turns;  // none begins before the last has gone round
  return plan;
}

CollectivePlan plan_transfer(double bytes, const GroupShape& shape, const Cluster& cluster) {
  ORRERY_CHECK(bytes >= 0, "a transfer of negative size");
  if (shape.ranks <= 1) return {};
  const CommunicationLibrary library = cluster.communication.library;
  if (library == CommunicationLibrary::mpi) return mpi_transfer(bytes, shape, cluster);
  return library_model(library).tuner ? nccl_transfer(bytes, shape, cluster)
                                      : hierarchical_transfer(bytes, shape, cluster);
}

double usable_fraction(LinkKind kind, const NodeType& node, const Cluster& cluster) {
  const CommunicationProfile& profile = cluster.communication;
  switch (kind) {
    case LinkKind::device_port:
    case LinkKind::mesh:
    case LinkKind::pcie:
      // Between device and network port, PCIe's rate is already what it gives to data.
      if (kind == LinkKind::pcie && (node.intra.kind != IntraKind::pcie || node.devices == 1)) return 1;
      if (profile.library == CommunicationLibrary::mpi) return 1;
      if (profile.calibrated) return profile.intra_efficiency;
      return link_fraction(kind, profile.library,
                           cluster.profiles[static_cast<std::size_t>(node.profile)].generation);
    case LinkKind::bridge:
    case LinkKind::memory:
      return 1;
    case LinkKind::nic:
    case LinkKind::leaf_uplink:
    case LinkKind::torus:
    case LinkKind::dragonfly_local:
    case LinkKind::dragonfly_global:
      return profile.network_efficiency > 0 ? profile.network_efficiency : 1;
  }
  return 1;
}

double wide_area_s(CollectiveKind kind, Algorithm algorithm, const GroupShape& shape) {
  if (shape.rooms <= 1) return 0;
  const double rooms = shape.rooms;
  const double nodes = shape.nodes;
  const double turns = kind == CollectiveKind::all_reduce ? 2 : 1;
  const double levels = std::ceil(std::log2(rooms));
  switch (algorithm) {
    case Algorithm::ring:
      if (kind == CollectiveKind::broadcast || kind == CollectiveKind::reduce)
        return (rooms - 1) * shape.wide_s;
      return turns * (nodes - 1) / nodes * rooms * shape.wide_s;
    case Algorithm::tree:
    case Algorithm::nvls_tree:
      return turns * levels * shape.wide_s;
    case Algorithm::recursive_doubling:
    case Algorithm::binomial:
    case Algorithm::pat:
      return levels * shape.wide_s;
    case Algorithm::nvls:
    case Algorithm::pairwise:
    case Algorithm::direct:
      break;
  }
  return shape.wide_s;
}

double bus_factor(CollectiveKind kind, int ranks) {
  if (ranks <= 1) return 1;
  const double n = ranks;
  switch (kind) {
    case CollectiveKind::all_reduce:
      return 2 * (n - 1) / n;
    case CollectiveKind::reduce_scatter:
    case CollectiveKind::all_gather:
    case CollectiveKind::all_to_all:
    case CollectiveKind::gather:
    case CollectiveKind::scatter:
      return (n - 1) / n;
    case CollectiveKind::broadcast:
    case CollectiveKind::reduce:
      return 1;
  }
  return 1;
}

}  // namespace orrery
