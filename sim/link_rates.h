// What links carry over time.
#pragma once

#include <vector>

#include "sim/network/flow_system.h"
#include "sim/simulator.h"
#include "sim/trace.h"

namespace orrery::sim {

// Each payload counts evenly from its beginning to its end, on every link that its flow's pattern loads.
LinkRates link_rates(const FlowSystem& flows, const std::vector<Moved>& moved);

}  // namespace orrery::sim
