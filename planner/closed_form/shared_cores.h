// Ranks that share the cores of one machine: what the least time is in which they do their work together,
// however it is spread over time.
#pragma once

#include <vector>

#include "topologies/cluster.h"

namespace orrery::planner {

class SharedCores {
 public:
  // Of the whole cluster where it stands on one machine, alike everywhere; else nothing can be said.
  explicit SharedCores(const Cluster& cluster);

  // The least seconds in which the devices, in the mean, compute for `work_s` (at the speed that plans
  // assume: with all of them at work) and wait for `idle_s`, the latter only while at least `together` of
  // them wait. 0 where nothing can be said.
  double least_s(double work_s, double idle_s, int together) const;

 private:
  std::vector<double> rates_;  // work that 0, 1, 2, … busy devices do in a second, in seconds of one
};

}  // namespace orrery::planner
