// How fast a cluster's devices are by matrix products of jobs that ran on them, and what their host takes for
// a launch.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "measurements/calibration/learned.h"
#include "measurements/measurement.h"

namespace orrery::measurements {

struct Kernels {
  // "clock", and where the runtime is named "matmul" and "host": factors on time
  // (planner/uncertainty/factors.h).
  std::vector<Learned> learned;
  std::string runtime;  // the profile's name; empty: not named
  HeldOut held_out;     // of products
  int products = 0;     // that say something: large enough to be bound by arithmetic alone
  int small = 0;        // others
};

// `cluster` as it is without measurements. Throws NoAnswer where a product is beyond the devices' peak.
Kernels learn_kernels(const Cluster& cluster, const Measurements& measured);

}  // namespace orrery::measurements
