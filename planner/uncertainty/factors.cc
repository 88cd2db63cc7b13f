#include "planner/uncertainty/factors.h"

#include <cmath>
#include <string>
#include <utility>

#include "base/error.h"
#include "topologies/named_network.h"

namespace orrery::planner {
namespace {

constexpr std::array<std::pair<std::string_view, Level>, kFactors> kNames = {{
    {"matmul", Level::framework},
    {"attention", Level::framework},
    {"vector", Level::framework},
    {"clock", Level::device},
    {"host", Level::framework},
    {"waiting", Level::framework},
    {"communication", Level::framework},
    {"intra", Level::network},
    {"between", Level::network},
    {"latency", Level::network},
    {"experts", Level::framework},
}};

}  // namespace

std::string_view name_of(Factor factor) {
  return kNames[static_cast<std::size_t>(factor)].first;
}

Factor factor_from_name(std::string_view name) {
  std::string known;
  for (const Factor factor : kAllFactors) {
    if (name_of(factor) == name) return factor;
    known += (known.empty() ? "" : ", ") + std::string(name_of(factor));
  }
  throw UserError("unknown factor '" + std::string(name) + "'", "one of " + known);
}

std::string_view name_of(Level level) {
  switch (level) {
    case Level::framework:
      return "framework";
    case Level::device:
      return "device";
    case Level::network:
      return "network";
  }
  return "unknown";
}

std::string_view network_class(const Cluster& cluster) {
  return orrery::name_of(cluster.fabric.transport);
}

std::string_view intra_class(const Cluster& cluster) {
  std::string_view found = "direct";
  for (const NodeGroup& group : cluster.groups) {
    if (group.node.devices == 1) continue;
    if (group.node.intra.kind == IntraKind::pcie) return "pcie";
    if (group.node.intra.kind == IntraKind::shared_memory) found = "memory";
  }
  return found;
}

Level level_of(Factor factor) {
  return kNames[static_cast<std::size_t>(factor)].second;
}

World of_everything(double log_time) {
  World world;
  for (const Factor factor : {Factor::matmul, Factor::attention, Factor::vector, Factor::host,
                              Factor::waiting, Factor::communication, Factor::latency})
    world[factor] = log_time;
  return world;
}

Cluster cluster_in(const World& world, Cluster cluster) {
  const auto times = [&](Factor factor) { return std::exp(world[factor]); };
  for (DeviceProfile& device : cluster.profiles) device.training_speed /= times(Factor::clock);
  if (world[Factor::intra] != 0)
    cluster = with_intra_node_times(std::move(cluster), 1 / times(Factor::intra));
  CommunicationProfile& fabric = cluster.communication;
  fabric.network_efficiency /= times(Factor::between);
  fabric.network_exchange_efficiency /= times(Factor::between);
  fabric.latency_scale *= times(Factor::latency);
  return cluster;
}

std::shared_ptr<const Job> job_in(const World& world, const Job& job) {
  auto drawn = std::make_shared<Job>(job);
  const auto times = [&](Factor factor) { return std::exp(world[factor]); };
  RuntimeProfile& runtime = drawn->runtime;
  runtime.matmul_efficiency /= times(Factor::matmul);
  runtime.attention_efficiency /= times(Factor::attention);
  runtime.memory_bound_efficiency /= times(Factor::vector);
  runtime.kernel_launch_s *= times(Factor::host);
  runtime.collective_overhead_s *= times(Factor::waiting);
  runtime.communication_efficiency /= times(Factor::communication);
  runtime.expert_exposed *= times(Factor::experts);
  for (DeviceProfile& device : drawn->cluster.profiles) device.launch_overhead_s *= times(Factor::host);
  drawn->cluster = cluster_in(world, std::move(drawn->cluster));
  return drawn;
}

}  // namespace orrery::planner
