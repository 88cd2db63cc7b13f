// What a step costs in money and energy.
#include <fmt/format.h>

#include "base/error.h"
#include "base/units.h"
#include "planner/search/search.h"

namespace orrery::planner {
namespace {

double joules(const Cluster& cluster, double step_s, double compute_s) {
  double sum = 0;
  for (const NodeGroup& group : cluster.groups) {
    const DeviceProfile& device = cluster.profiles[group.node.profile];
    if (device.peak_power_w <= 0)
      throw UserError(fmt::format("`objective` energy: {} states no power", device.name),
                      "expected idle_power_w and peak_power_w in the device profile");
    sum += device_energy_j(cluster, group.node, step_s, compute_s) * group.node.devices * group.count;
  }
  return sum;
}

double price_of(const Cluster& cluster, const NodeType& node) {
  return node.price_usd_per_device_hour > 0 ? node.price_usd_per_device_hour
                                            : cluster.profiles[node.profile].price_usd_per_hour;
}

}  // namespace

double usd_per_s(const Cluster& cluster) {
  double sum = 0;
  for (const NodeGroup& group : cluster.groups) {
    const double price = price_of(cluster, group.node);
    if (price <= 0) return 0;
    sum += price * group.node.devices * group.count / kSecondsPerHour;
  }
  return sum;
}

std::string_view name_of(Rank rank) {
  return rank == Rank::robust ? "robust" : "nominal";
}

std::string_view name_of(Objective objective) {
  switch (objective) {
    case Objective::step_time:
      return "step-time";
    case Objective::cost:
      return "cost";
    case Objective::energy:
      return "energy";
    case Objective::memory:
      return "memory";
  }
  return "unknown";
}

double objective_value(Objective objective, const Job& job, double step_s, double compute_s,
                       double memory_bytes) {
  switch (objective) {
    case Objective::step_time:
      return step_s;
    case Objective::cost:
      for (const NodeGroup& group : job.cluster.groups) {
        if (price_of(job.cluster, group.node) <= 0)
          throw UserError(
              fmt::format("`objective` cost: {} states no price of {}", job.cluster.name, group.node.name),
              "expected price_usd_per_device_hour in the cluster file");
      }
      return usd_per_s(job.cluster) * step_s;
    case Objective::energy:
      return joules(job.cluster, step_s, compute_s);
    case Objective::memory:
      return memory_bytes;
  }
  throw InternalError("unknown objective");
}

double objective_value(Objective objective, const Evaluation& evaluation) {
  const Job& job = *evaluation.plan.job;
  const double value = objective_value(objective, job, evaluation.step_time_s(), 0, evaluation.memory.total);
  return objective == Objective::energy ? evaluation.simulation->energy_j : value;
}

}  // namespace orrery::planner
