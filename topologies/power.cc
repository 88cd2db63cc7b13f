#include "topologies/power.h"

#include <algorithm>

namespace orrery {

bool states_power(const Cluster& cluster) {
  return std::all_of(cluster.groups.begin(), cluster.groups.end(), [&](const NodeGroup& group) {
    return cluster.profiles[group.node.profile].peak_power_w > 0;
  });
}

double idle_power_w(const Cluster& cluster) {
  if (!states_power(cluster)) return 0;
  double watts = 0;
  for (const NodeGroup& group : cluster.groups)
    watts += group.count * (group.node.host_power_w +
                            group.node.devices * cluster.profiles[group.node.profile].idle_power_w);
  return watts;
}

double device_energy_j(const Cluster& cluster, const NodeType& node, double time_s, double busy_s) {
  const DeviceProfile& device = cluster.profiles[node.profile];
  const double of_node_w = node.host_power_w / std::max(1, node.devices);
  return (device.idle_power_w + of_node_w) * time_s +
         (device.peak_power_w - device.idle_power_w) * std::min(busy_s, time_s);
}

}  // namespace orrery
