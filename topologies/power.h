// What devices and their nodes draw. A device takes its idle power all the time and the rest, up to its peak,
// while it computes; a node its host_power_w all the time, an equal part of which is each device's.
#pragma once

#include "topologies/cluster.h"

namespace orrery {

// Of all devices; without it nobody knows an energy.
bool states_power(const Cluster& cluster);
// Of all devices and nodes; 0: some device's is not stated.
double idle_power_w(const Cluster& cluster);
// Of one device of such a node, with its part of it, in `time_s` of which it computes `busy_s`.
double device_energy_j(const Cluster& cluster, const NodeType& node, double time_s, double busy_s);

}  // namespace orrery
