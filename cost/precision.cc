#include "cost/precision.h"

#include <fmt/format.h>

#include <algorithm>

namespace orrery {

std::vector<std::string> without_units(const Job& job) {
  std::vector<std::string> found;
  const DType precision = job.training.precision;
  for (const NodeGroup& group : job.cluster.groups) {
    const DeviceProfile& device = job.cluster.profiles[static_cast<std::size_t>(group.node.profile)];
    const DType instead = device.compute_type(precision);
    if (instead == precision) continue;
    std::string text = fmt::format("{} has no {} units: products are computed in {}", device.name,
                                   name_of(precision), name_of(instead));
    if (std::find(found.begin(), found.end(), text) == found.end()) found.push_back(std::move(text));
  }
  return found;
}

}  // namespace orrery
