#include "planner/search/fewer_devices.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/format.h"

namespace orrery::planner {
namespace {

bool divides_well(int count) {
  while (count % 2 == 0) count /= 2;
  return count <= 3;
}

// The largest such count up to this one.
int well_dividing(int count) {
  while (!divides_well(count)) --count;
  return count;
}

}  // namespace

std::optional<Cluster> fewer_devices(const Job& job, const Pins& pins) {
  const Cluster& cluster = job.cluster;
  if (cluster.groups.size() != 1 || !cluster.overrides.empty() || pins.dp) return {};
  const int own = cluster.nodes() > 1 ? cluster.nodes() : cluster.devices();
  const int of_each = cluster.devices() / own;
  const std::int64_t batch = job.training.global_batch;
  int count = own - 1, of_part = of_each;
  if (!divides_well(own) || !divides_well(of_each)) {
    count = well_dividing(own);
    of_part = well_dividing(of_each);
    if (std::int64_t{4} * count * of_part < std::int64_t{3} * own * of_each) return {};
  } else if (batch < cluster.devices() && cluster.devices() % batch != 0) {
    while (count > 0 && batch % (std::int64_t{count} * of_each) != 0) --count;
  } else {
    return {};
  }
  if (count == 0) return {};
  try {
    return with_devices(cluster, count * of_part);
  } catch (const UserError&) {
    return {};  // a fabric that cannot be made so small, nodes of which no part can be had
  }
}

std::string why_fewer(const Evaluation& all, const Evaluation& fewer) {
  constexpr double kAsFast = 0.01;
  const double saves = 1 - fewer.step_time_s() / all.step_time_s();
  if (saves < -kAsFast) return {};
  const int devices = all.plan.job->cluster.devices(), some = fewer.plan.job->cluster.devices();
  const std::string of_these = fmt::format("{} of these {} devices", with_commas(some), with_commas(devices));
  if (saves < kAsFast)
    return fmt::format("{} take {} a step: the others make it no faster.", of_these,
                       human_seconds(fewer.step_time_s()));
  return fmt::format("{} are {:.1f}% faster: {} a step.", of_these, 100 * saves,
                     human_seconds(fewer.step_time_s()));
}

}  // namespace orrery::planner
