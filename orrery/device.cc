#include "orrery/device.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>

#include "base/file.h"
#include "program/runtime_profile.h"
#include "workloads/readers/catalog.h"

namespace orrery {
namespace {

constexpr double kTold = 0.02;  // of the variance: less is not worth a measurement

// What of a device somebody can measure to know a factor; of the others, a step.
std::string measurement_of(planner::Factor factor) {
  switch (factor) {
    case planner::Factor::matmul:
      return "long matrix products in the type of the run (matmul)";
    case planner::Factor::attention:
      return "fused attention at the run's sequence length (attention)";
    case planner::Factor::vector:
      return "a copy of some gigabytes, and norms and activations (memory_efficiency, vector)";
    case planner::Factor::clock:
      return "the same products for some minutes, warm (sustained_clock)";
    case planner::Factor::host:
      return "the launch of an empty kernel (launch_overhead_s)";
    case planner::Factor::communication:
    case planner::Factor::intra:
    case planner::Factor::between:
    case planner::Factor::latency:
      return "an all-reduce inside a node and between nodes";
    case planner::Factor::waiting:
    case planner::Factor::experts:
      break;
  }
  return "one step of a model on it";
}

Plan plan_on_one(const Cluster& cluster, const DeviceProfile& device) {
  auto job = std::make_shared<Job>();
  job->workload = load_workload(std::string(kDeviceWorkload));
  job->cluster = cluster;
  NodeGroup group = cluster.groups.front();
  for (const NodeGroup& each : cluster.groups)
    if (cluster.profiles[static_cast<std::size_t>(each.node.profile)].name == device.name) group = each;
  const auto same = [&](const DeviceProfile& profile) { return profile.name == device.name; };
  group.node.profile = static_cast<int>(std::find_if(cluster.profiles.begin(), cluster.profiles.end(), same) -
                                        cluster.profiles.begin());
  group.count = 1;
  group.node.hosts.clear();
  job->cluster.groups = {group};
  job->cluster.overrides.clear();
  job->cluster = with_devices(std::move(job->cluster), 1);
  const bool gpu = device.kind == DeviceKind::gpu;
  job->runtime = default_runtime(gpu ? RuntimeUse::gpu : RuntimeUse::cpu);
  job->training.global_batch = 1;
  job->training.seq_len = job->workload.default_seq_len;
  job->training.fused_attention = job->runtime.fused_attention;
  job->training.precision = gpu ? DType::bf16 : DType::fp32;
  return {job, {}};
}

DeviceOutlook outlook_of(const Cluster& cluster, const DeviceProfile& device) {
  const Plan plan = plan_on_one(cluster, device);
  planner::Outlook outlook(plan.job);
  const planner::Response response = outlook.response(plan.choices);
  const std::array<double, planner::kFactors> shares =
      planner::shares_of_variance(response, outlook.spread());
  std::map<std::string, double> by_measurement;
  double rest = 1;
  for (const planner::Factor factor : planner::kAllFactors) {
    const double share = shares[static_cast<std::size_t>(factor)];
    by_measurement[measurement_of(factor)] += share;
    rest -= share;
  }
  by_measurement[measurement_of(planner::Factor::waiting)] += rest;
  DeviceOutlook result{
      device.name, planner::step_range(response, outlook.spread()), outlook.spread().rests_on, {}};
  for (const auto& [measurement, share] : by_measurement)
    if (share >= kTold) result.measurements.emplace_back(measurement, share);
  std::stable_sort(result.measurements.begin(), result.measurements.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  return result;
}

}  // namespace

DeviceCheck check_device(const std::string& file) {
  DeviceCheck check{review_devices(read_file(file), file), {}};
  for (const std::string& name : check.review.reviewed)
    for (const DeviceProfile& device : check.review.cluster.profiles)
      if (device.name == name) check.outlooks.push_back(outlook_of(check.review.cluster, device));
  return check;
}

}  // namespace orrery
