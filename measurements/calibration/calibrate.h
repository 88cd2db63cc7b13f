// A cluster as measurements on it have it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "measurements/calibration/links.h"
#include "measurements/calibration/steps.h"
#include "measurements/measurement.h"

namespace orrery::measurements {

struct Calibrated {
  Cluster cluster;           // with its calibration
  std::string runtime;       // of the steps; empty: none
  std::string runtime_from;  // what says so
  std::vector<Learned> factors;
  std::optional<HeldOut> steps, collectives, products;  // where there were some
  int small_products = 0;                               // too small to say anything
  std::vector<Departure> departures;
  std::vector<std::string> doubts;  // of the measurements, and of what follows from them
};

// `cluster` as it is without measurements. Throws UserError where steps are of several runtimes or nothing
// was measured, NoAnswer where numbers are beyond what the cluster can do.
Calibrated calibrate(const Cluster& cluster, const Measurements& measured);

}  // namespace orrery::measurements
