// Other hardware than a cluster's own: what a sensitivity and a what-if ask about.
#pragma once

#include <string_view>
#include <vector>

#include "topologies/cluster.h"

namespace orrery::planner {

// Between nodes: ports, the devices' way to them, and the fabric's links. Where devices reach their ports
// over the PCIe that also joins them to each other, that stays as it is.
Cluster with_network_times(Cluster cluster, double times);
Cluster with_device_memory_times(Cluster cluster, double times);
// Arithmetic, memory bandwidth and what a kernel takes at least; launches by the host, power and price stay.
Cluster with_device_speed_times(Cluster cluster, double times);
// USD an hour of every device.
inline constexpr std::string_view kPriceKey = "price";
Cluster with_price(Cluster cluster, double usd_per_device_hour);

// Another device of the catalog in the place of every node's own, at its list price; the nodes' links stay.
// Throws UserError on an unknown name, on nodes of several types and where it is another vendor's, which
// those links would not join.
Cluster with_device(Cluster cluster, std::string_view name);

// A device that takes `factor` times as long for everything that it does by itself.
void slow_down(DeviceProfile& device, double factor);

// The changes above by the names that the command line gives them.
struct HardwareKey {
  std::string_view key;
  std::string_view help;
  double least, most;  // of the number
  Cluster (*changed)(Cluster cluster, double number);
  // What is no number: a name. Null: only numbers. Throws UserError on an unknown one.
  Cluster (*named)(Cluster cluster, std::string_view name) = nullptr;
  std::string_view zero = {};  // what 0 means where a cluster file says it; empty: nothing of its own
};
const std::vector<HardwareKey>& hardware_keys();

}  // namespace orrery::planner
