// How uncertain the factors of a job are, and what that rests on: whether evidence names its runtime, device
// and network (planner/uncertainty/spread.textproto, written by evidence/fits/fit_factors).
#pragma once

#include <array>

#include "planner/uncertainty/factors.h"
#include "topologies/link_class.h"

namespace orrery::planner {

struct RestsOn {
  Foundation runtime = Foundation::assumed, device = Foundation::assumed, network = Foundation::assumed;
};

// Standard deviations of natural logarithms.
struct Spread {
  std::array<double, kFactors> factor{};
  // Independent of one another, one standard deviation each, together what is not known of the factors: of
  // factors that are known apart from each other, each its own.
  std::array<World, kFactors> directions{};
  double site = 0;  // of all that runs on one cluster, alike
  double own = 0;   // of this model and row, beside
  double memory = 0;
  RestsOn rests_on;
};

Spread spread_of(const Job& job);

// The links inside nodes by their library's constants, the network by its transport: the less known of both.
Foundation network_foundation(const Cluster& cluster);

}  // namespace orrery::planner
