#include "planner/search/subsets.h"

#include <fmt/format.h>

#include <set>

#include "base/error.h"
#include "base/format.h"

namespace orrery::planner {

std::string name_of(const Cluster& cluster, const NodeGroup& group) {
  if (!group.node.name.empty()) return group.node.name;
  return fmt::format("{} {}", group.node.devices,
                     cluster.profiles[static_cast<std::size_t>(group.node.profile)].name);
}

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
