#include "planner/search/subsets.h"

#include <fmt/format.h>

#include <set>

#include "base/error.h"
#include "base/format.h"
#include "topologies/node_counts.h"

namespace orrery::planner {

std::vector<Cluster> homogeneous_subsets(const Cluster& cluster) {
  std::set<int> degraded;
  for (const Override& change : cluster.overrides)
    if (change.speed != 1) degraded.insert(change.node);
  std::vector<Cluster> found;
  if (cluster.groups.size() == 1 && degraded.empty()) return found;
  int first = 0;
  for (const NodeGroup& group : cluster.groups) {
    int sound = group.count;
    for (const int node : degraded)
      if (node >= first && node < first + group.count) --sound;
    first += group.count;
    if (sound == 0) continue;
    Cluster alone = cluster;
    alone.groups = {group};
    alone.overrides.clear();
    try {
      alone = with_nodes(alone, sound);
    } catch (const UserError&) {
      continue;  // a fabric that cannot be made so small
    }
    alone.name = fmt::format("{} ({}) of {}", counted(sound, "node"), name_of(cluster, group), cluster.name);
    found.push_back(std::move(alone));
  }
  return found;
}

}  // namespace orrery::planner
