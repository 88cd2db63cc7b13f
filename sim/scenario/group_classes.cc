#include "sim/scenario/group_classes.h"

#include <algorithm>

namespace orrery::sim {

// Classes of the ranks, with repetitions: equal for groups that stand for each other.
std::vector<int> GroupClasses::members_of(const Group& group) const {
  std::vector<int> classes;
  classes.reserve(group.ranks.size());
  for (const int rank : group.ranks) classes.push_back(input_.class_of[static_cast<std::size_t>(rank)]);
  std::sort(classes.begin(), classes.end());
  return classes;
}

int GroupClasses::of(int index, const Program& program, int group) {
  std::vector<int>& known = class_of_[index];
  if (known.empty()) known.assign(program.groups.size(), -1);
  int& result = known.at(static_cast<std::size_t>(group));
  if (result >= 0) return result;
  const Group& named = program.groups[static_cast<std::size_t>(group)];
  const auto [at, added] =
      index_.try_emplace(std::make_pair(named.kind, members_of(named)), static_cast<int>(classes_.size()));
  result = at->second;
  if (!added) return result;
  GroupClass fresh;
  fresh.group = named;
  fresh.simulated = at->first.second;
  fresh.simulated.erase(std::unique(fresh.simulated.begin(), fresh.simulated.end()), fresh.simulated.end());
  for (const int rank : named.ranks) fresh.devices.push_back(input_.device_of(rank));
  fresh.shape = group_shape(*input_.network, fresh.devices);
  classes_.push_back(std::move(fresh));
  return result;
}

CollectivePlan GroupClasses::collective(int group_class, const Program& program,
                                        const Instruction& instruction) {
  const bool broadcasts = input_.runtime.updates_by_broadcast && instruction.form == Parallelism::data &&
                          instruction.collective == CollectiveKind::all_gather &&
                          instruction.reads.front().kind == TensorKind::parameters;
  int tensors = 0;  // broadcast one after another; 0: not broadcast
  if (broadcasts) {
    const auto bucket = static_cast<std::size_t>(instruction.reads.front().index);
    tensors = static_cast<int>(program.buckets.at(bucket).parameters.size());
  }
  const auto key = std::make_tuple(group_class, instruction.collective, instruction.bytes, tensors);
  const auto at = collectives_.find(key);
  if (at != collectives_.end()) return at->second;
  const GroupShape& shape = classes_[static_cast<std::size_t>(group_class)].shape;
  const Cluster& cluster = input_.network->cluster();
  const CollectivePlan plan = tensors > 0 ? plan_broadcasts(instruction.bytes, tensors, shape, cluster)
                                          : plan_collective(instruction.collective, instruction.bytes, shape,
                                                            cluster, input_.algorithm);
  return collectives_.emplace(key, plan).first->second;
}

CollectivePlan GroupClasses::transfer(int source_device, int destination_device, double bytes) {
  const auto key = std::make_tuple(source_device, destination_device, bytes);
  const auto at = transfers_.find(key);
  if (at != transfers_.end()) return at->second;
  const auto [shape, added] = pairs_.try_emplace({source_device, destination_device});
  if (added) shape->second = group_shape(*input_.network, {source_device, destination_device});
  return transfers_.emplace(key, plan_transfer(bytes, shape->second, input_.network->cluster()))
      .first->second;
}

}  // namespace orrery::sim
