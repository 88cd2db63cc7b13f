#include "cost/host_cost.h"

#include <algorithm>

#include "cost/compute_cost.h"

namespace orrery {
namespace {

// PCIe 4.0 with 16 lanes carries 31.5e9 bytes a second raw; pinned copies reach four fifths of that
// (bandwidthTest's usual figure; packets of 256 bytes carry 24 of headers and acknowledgements).
constexpr double kPcie4 = 25e9;
// Two sockets with eight channels of DDR4-3200 have 410e9; half of it is what streams of reads and writes by
// all cores get. Nothing here was measured.
constexpr double kHostMemory = 2e11;

double host_memory_part(const Cluster& cluster) {
  return kHostMemory / std::max(1, devices_beside(cluster));
}

const DeviceProfile& first_device(const Cluster& cluster) {
  return cluster.profiles[static_cast<std::size_t>(cluster.groups.front().node.profile)];
}

}  // namespace

double host_link_bytes_per_s(const DeviceProfile& device, const Cluster& cluster) {
  const double link = device.host_bandwidth_bytes_per_s > 0 ? device.host_bandwidth_bytes_per_s : kPcie4;
  return std::min(link, host_memory_part(cluster));
}

double host_shard_seconds(CollectiveKind kind, double bytes, int ranks, const RuntimeProfile& runtime,
                          const Cluster& cluster) {
  const DeviceProfile& device = first_device(cluster);
  if (device.kind == DeviceKind::cpu || ranks < 1) return 0;
  const double shard_s = bytes / ranks / host_link_bytes_per_s(device, cluster);
  if (kind == CollectiveKind::all_gather) return runtime.host_parameters ? shard_s : 0;
  if (kind == CollectiveKind::reduce_scatter) return runtime.host_gradients ? 2 * shard_s : 0;
  return 0;
}

int host_sharding(const Choices& choices, const RuntimeProfile& runtime) {
  const bool waits = runtime.host_parameters || runtime.host_gradients;
  if (!waits || choices.dp * choices.cp <= 1 || choices.zero < 2) return 0;
  return std::min(choices.zero, 3);
}

double host_pass_seconds(const Operator& op, ComputeKind kind, const Shard& shard, const Plan& plan,
                         const DeviceProfile& device) {
  const RuntimeProfile& runtime = plan.job->runtime;
  if (device.kind == DeviceKind::cpu || !(runtime.host_parameters || runtime.host_gradients)) return 0;
  const int sharded = host_sharding(plan.choices, runtime);
  const bool back = does_input_gradient(kind);
  const auto parameters = static_cast<double>(local_parameters(op, shard));
  double bytes = 0;
  if (runtime.host_parameters && sharded < 3 && (back || kind == ComputeKind::forward)) {
    bytes += parameters * bytes_of(plan.parameter_type());
    for (const ParameterTensor& tensor : op.frozen) bytes += frozen_bytes(op, tensor, shard, runtime);
  }
  if (runtime.host_gradients && sharded < 2 && does_weight_gradient(kind))
    bytes += 2 * parameters * bytes_of(plan.gradient_type());
  return bytes > 0 ? bytes / host_link_bytes_per_s(device, plan.job->cluster) : 0;
}

double parameter_update_seconds(double elements, const Job& job, const DeviceProfile& device) {
  const RuntimeProfile& runtime = job.runtime;
  const Training& training = job.training;
  const double traffic =
      elements * optimizer_traffic_per_parameter(training.optimizer, training.precision, runtime);
  const double on_device = optimizer_seconds(traffic, device) / runtime.memory_bound_efficiency;
  if (runtime.host_states <= 0 || device.kind == DeviceKind::cpu) return on_device;
  const double weight = bytes_of(storage_type(training.precision));
  const double gradient = gradient_bytes_per_parameter(training.precision, runtime);
  const double moved =
      elements * std::max(runtime.host_gradients ? 0 : gradient, runtime.host_parameters ? 0 : weight);
  const double copied_s = moved / host_link_bytes_per_s(device, job.cluster);
  const double computed_s = traffic / host_memory_part(job.cluster);
  return (1 - runtime.host_states) * on_device + runtime.host_states * std::max(copied_s, computed_s);
}

}  // namespace orrery
