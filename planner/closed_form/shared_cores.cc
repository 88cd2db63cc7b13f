#include "planner/closed_form/shared_cores.h"

#include <algorithm>
#include <limits>

#include "cost/compute_cost.h"

namespace orrery::planner {

SharedCores::SharedCores(const Cluster& cluster) {
  const bool alike = cluster.groups.size() == 1 && cluster.overrides.empty();
  if (!alike || (cluster.nodes() > 1 && cluster.shared_cores == 0)) return;
  const NodeType& node = cluster.groups.front().node;
  const DeviceProfile& device = cluster.profiles[node.profile];
  const std::vector<double>& scale = device.concurrency_scale;
  const int cores = cluster.shared_cores > 0 ? cluster.shared_cores : node.shared_cores;
  if (scale.empty() && cores == 0) return;
  const int devices = cluster.devices();
  const double assumed = kept_speed(devices, cluster, device);
  rates_.push_back(0);
  for (int busy = 1; busy <= devices; ++busy) {
    const int at_once = cores > 0 ? std::min(busy, cores) : busy;
    const double keeps =
        scale.empty() ? 1 : scale[std::min(static_cast<std::size_t>(at_once), scale.size()) - 1] / assumed;
    rates_.push_back(at_once * keeps);
  }
}

// A linear program over the seconds that 0, 1, 2, … devices are busy, with two constraints: work done and
// waiting done. At its optimum at most two of these numbers are not zero.
double SharedCores::least_s(double work_s, double idle_s, int together) const {
  if (rates_.empty()) return 0;
  const int devices = static_cast<int>(rates_.size()) - 1;
  const double work = work_s * devices;
  const double waiting = idle_s * devices;
  const auto waits = [&](int busy) {
    return devices - busy >= std::min(together, devices) ? static_cast<double>(devices - busy) : 0.0;
  };
  double least = std::numeric_limits<double>::infinity();
  for (int i = 1; i <= devices; ++i) {
    // With i busy throughout, or until the work is done and with j busy for the waiting that is left.
    const double working_s = work / rates_[i];
    const double left = waiting - waits(i) * working_s;
    if (left <= 0) least = std::min(least, working_s);
    for (int j = 0; j < i && left > 0; ++j) {
      // work = a rate_i + b rate_j, waiting = a waits_i + b waits_j
      const double determinant = rates_[i] * waits(j) - rates_[j] * waits(i);
      if (determinant <= 0) continue;
      const double a = (work * waits(j) - waiting * rates_[j]) / determinant;
      const double b = (waiting * rates_[i] - work * waits(i)) / determinant;
      if (a >= 0 && b >= 0) least = std::min(least, a + b);
    }
  }
  return least;
}

}  // namespace orrery::planner
