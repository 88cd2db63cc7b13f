// Laws of scaling, fitted to rates on more and more devices.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"

namespace orrery {

struct ScalingPoint {
  double devices = 0;
  double rate = 0;  // samples or tokens a second
};

// amdahl (AFIPS 1967): rate = r n / (1 + s (n - 1)), s the serial share of one device's time.
// gustafson (CACM 31(5), 1988): rate = r (s + (1 - s) n), s the serial share of the parallel run's.
// usl (Gunther's universal scalability law): rate = r n / (1 + s (n - 1) + k n (n - 1)), s contention, k what
//   every pair of devices costs (coherency).
// r is the rate of one device, fitted as well, for a model may not fit on one.
struct ScalingFit {
  std::string law;
  double rate_of_one = 0, serial = 0, pairs = 0;
  double error = 0;         // root of the mean of squares of relative errors
  double most_devices = 0;  // usl with k > 0: beyond it the rate falls, sqrt((1 - s) / k); 0: never
  double rate(double devices) const;
};

// Least squares of relative errors, s from 0 to 1 and k from 0. None where there are fewer than three points
// with devices of their own: two points fit any law.
std::vector<ScalingFit> fit_scaling(const std::vector<ScalingPoint>& points);

// Of a what-if as `whatif --json` has it: points, fits, unit, strong (the same global batch everywhere); an
// empty object where devices do not vary, or something else does beside nodes or devices.
Json scaling_json(const Json& whatif);

}  // namespace orrery
