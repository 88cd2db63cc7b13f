#include "exec/communicators/algorithms.h"

#include "program/placement.h"

namespace orrery::exec {

AlgorithmChooser::AlgorithmChooser(const Plan& plan) : plan_(plan), network_(plan.job->cluster) {}

AlgorithmChoice AlgorithmChooser::for_group(const std::vector<std::int32_t>& ranks,
                                            CommunicationLibrary library) const {
  if (plan_.job->cluster.communication.library != library) return {};
  std::vector<int> devices;
  for (const std::int32_t rank : ranks) devices.push_back(device_of(plan_, rank));
  const GroupShape shape = group_shape(network_, devices);
  return [shape, job = plan_.job](CollectiveKind kind, double bytes) {
    return plan_collective(kind, bytes, shape, job->cluster);
  };
}

}  // namespace orrery::exec
