#include "planner/runs/checkpoint_cost.h"

#include <algorithm>
#include <vector>

#include "program/placement.h"

namespace orrery::planner {
namespace {

double parameters_of_stage(const Plan& plan, int stage) {
  double parameters = 0;
  for (int chunk = 0; chunk < plan.choices.interleave; ++chunk) {
    const LayerRange range = operators_of(plan, stage, chunk);
    for (int i = range.begin; i < range.end; ++i)
      parameters +=
          static_cast<double>(plan.job->workload.operators[static_cast<std::size_t>(i)].parameter_count());
  }
  return parameters;
}

bool writes(const Plan& plan, int rank) {
  if (plan.choices.has_servers()) return true;
  if (plan.choices.zero == 0) return group_of(GroupKind::data, plan, rank).ranks.front() == rank;
  return group_of(GroupKind::replicate, plan, rank).ranks.front() == rank;
}

double to_host_bytes_per_s(const NodeType& node) {
  if (node.nic.pcie_bandwidth_bytes_per_s > 0) return node.nic.pcie_bandwidth_bytes_per_s;
  const bool through_host = node.intra.kind == IntraKind::pcie || node.intra.kind == IntraKind::shared_memory;
  return through_host ? node.intra.bandwidth_bytes_per_s : 0;
}

double longest(const Cluster& cluster, const std::vector<double>& bytes_of_node,
               double NodeType::*bytes_per_s) {
  double seconds = 0;
  for (std::size_t node = 0; node < bytes_of_node.size(); ++node) {
    if (bytes_of_node[node] <= 0) continue;
    const double rate = cluster.node_type(static_cast<int>(node)).*bytes_per_s;
    if (rate <= 0) return 0;
    seconds = std::max(seconds, bytes_of_node[node] / rate);
  }
  return seconds;
}

}  // namespace

double checkpoint_bytes_per_parameter(const Plan& plan) {
  constexpr double kSingle = 4;
  const DType storage = plan.parameter_type();
  const RuntimeProfile& runtime = plan.job->runtime;
  const bool stored_twice =
      storage != DType::fp32 && !runtime.gathered_weights_only && !runtime.name.starts_with("orrery");
  return kSingle * (1 + optimizer_states(plan.job->training.optimizer)) +
         (stored_twice ? bytes_of(storage) : 0);
}

CheckpointCost checkpoint_cost(const Plan& plan) {
  const Cluster& cluster = plan.job->cluster;
  const double bytes_per_parameter = checkpoint_bytes_per_parameter(plan);
  std::vector<std::vector<int>> writers(static_cast<std::size_t>(plan.stages()));
  for (int rank = 0; rank < plan.choices.world(); ++rank)
    if (writes(plan, rank)) writers[static_cast<std::size_t>(coordinates_of(plan, rank).pp)].push_back(rank);
  CheckpointCost cost;
  std::vector<double> of_node(static_cast<std::size_t>(cluster.nodes()));
  for (int stage = 0; stage < plan.stages(); ++stage) {
    const std::vector<int>& ranks = writers[static_cast<std::size_t>(stage)];
    const double bytes = parameters_of_stage(plan, stage) * bytes_per_parameter;
    const double each = bytes / static_cast<double>(ranks.size());
    cost.bytes += bytes;
    for (const int rank : ranks)
      of_node[static_cast<std::size_t>(cluster.place(device_of(plan, rank)).node)] += each;
    if (each > cost.device_bytes) {
      cost.device_bytes = each;
      cost.device_bytes_per_s =
          to_host_bytes_per_s(cluster.node_type(cluster.place(device_of(plan, ranks.front())).node));
    }
  }
  cost.write_s = longest(cluster, of_node, &NodeType::storage_write_bytes_per_s);
  cost.read_s = longest(cluster, of_node, &NodeType::storage_read_bytes_per_s);
  return cost;
}

}  // namespace orrery::planner
