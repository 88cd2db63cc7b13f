#include "planner/search/group_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "planner/search/candidates.h"
#include "planner/uncertainty/outlook.h"
#include "topologies/node_counts.h"

namespace orrery::planner {
namespace {

// Of the best plan that fits, by the closed form; infinite where none does.
double least_expected(const std::shared_ptr<const Job>& job, const Pins& pins, const SearchOptions& options) {
  double least = std::numeric_limits<double>::infinity();
  try {
    Estimator estimator(job);
    const Room room = {std::min(1.0, fillable_share(options.fit_probability, spread_of(*job)))};
    for (const Candidate& candidate : gather(job, pins, options.objective, 1, estimator, room).promising)
      least = std::min(least, candidate.expected);
  } catch (const UserError&) {
    // The search says what is wrong.
  }
  return least;
}

}  // namespace

std::shared_ptr<const Job> with_group_order(const std::shared_ptr<const Job>& job, const Pins& pins,
                                            const SearchOptions& options) {
  const std::size_t groups = job->cluster.groups.size();
  if (groups < 2 || groups > kMostGroups || !job->cluster.overrides.empty() || pins.pp.value_or(0) == 1)
    return job;
  if (pins.stage_layers) return job;  // dealt to the stages that the file's order gives
  std::vector<std::size_t> order(groups);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::shared_ptr<const Job> best = job;
  double least = least_expected(job, pins, options) * (1 - kWorthMoving);
  while (std::next_permutation(order.begin(), order.end())) {
    auto moved = std::make_shared<Job>(*job);
    for (std::size_t i = 0; i < groups; ++i) moved->cluster.groups[i] = job->cluster.groups[order[i]];
    const double expected = least_expected(moved, pins, options);
    if (expected >= least) continue;
    least = expected;
    best = std::move(moved);
  }
  return best;
}

std::string moved_groups(const Cluster& file, const Cluster& chosen) {
  const auto names = [](const Cluster& cluster) {
    std::vector<std::string> found;
    for (const NodeGroup& group : cluster.groups)
      found.push_back(fmt::format("{} of {}", counted(group.count, "node"), name_of(cluster, group)));
    return found;
  };
  const std::vector<std::string> order = names(chosen);
  if (order == names(file)) return {};
  return fmt::format(
      "Ranks fill {}: this order of the cluster's groups of nodes suits the pipeline better than the file's.",
      fmt::join(order, ", then "));
}

}  // namespace orrery::planner
