#include "planner/closed_form/communicators.h"

#include <algorithm>

#include "program/placement.h"
#include "topologies/link_class.h"

namespace orrery::planner {
namespace {

// A ring has two neighbours, and so has a chain, as which a tree crosses a node.
constexpr int kNeighbours = 2;

// Ranks on rank 0's node, itself included, that share a group with it.
struct Together {
  int world = 1, tensor = 1, data = 1, pipeline = 1, replica = 1;
};

Together together(const Plan& plan) {
  Together count;
  const int node = plan.job->cluster.groups.front().node.devices;
  const Coordinates first = coordinates_of(plan, 0);
  for (int rank = 1; rank < std::min(node, plan.choices.world()); ++rank) {
    const Coordinates at = coordinates_of(plan, rank);
    const bool same_data = at.dp == first.dp && at.cp == first.cp;
    const bool same_stage = at.pp == first.pp;
    const bool same_tensor = at.tp == first.tp;
    ++count.world;
    count.tensor += same_data && same_stage;
    count.data += same_stage && same_tensor;
    count.pipeline += same_data && same_tensor;
    count.replica += same_data;
  }
  return count;
}

}  // namespace

double communicator_bytes(const Plan& plan) {
  const int sets = plan.job->runtime.communicator_sets;
  if (sets == 0) return 0;
  const Cluster& cluster = plan.job->cluster;
  if (cluster.communication.library == CommunicationLibrary::mpi) return 0;
  const NodeType& node = cluster.groups.front().node;
  const LibraryModel& library = library_model(cluster.communication.library);
  const LinkClass& link = library.link(node.intra.kind == IntraKind::pcie,
                                       cluster.profiles[static_cast<std::size_t>(node.profile)].generation);
  const auto neighbours = [](int ranks) { return std::min(ranks - 1, kNeighbours); };
  const Together on_node = together(plan);
  int all = neighbours(on_node.world);
  for (const int ranks : {on_node.tensor, on_node.data, on_node.pipeline, on_node.replica})
    all += sets * neighbours(ranks);
  return all * link.channels * library.channel_bytes;
}

}  // namespace orrery::planner
