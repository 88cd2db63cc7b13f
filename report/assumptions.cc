#include "report/assumptions.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>
#include <string>

#include "base/format.h"
#include "orrery/orrery.h"
#include "planner/uncertainty/spread.h"

namespace orrery {
namespace {

class List {
 public:
  void add(std::string what, std::string value, std::string_view rests_on, std::string source) {
    Json one = {{"what", std::move(what)}, {"value", std::move(value)}};
    if (!rests_on.empty()) one["rests_on"] = rests_on;
    if (!source.empty()) one["source"] = std::move(source);
    list.push_back(std::move(one));
  }
  Json list = Json::array();
};

// Whose price, of which kind and day; a default, since one pays what one has agreed on.
std::string price_source(const Cluster& cluster, const DeviceProfile& device, bool own, double price) {
  if (price <= 0) return "";
  if (own) return fmt::format("the cluster's file of `{}`", cluster.name);
  return fmt::format("{}: the device's file of `{}`, a default to be edited",
                     device.price_as_of.empty() ? "not dated" : device.price_as_of, device.name);
}

void add_device(const Cluster& cluster, const NodeGroup& group, DType precision, List& list) {
  const DeviceProfile& device = cluster.profiles[group.node.profile];
  list.add(fmt::format("Device {}", device.name),
           fmt::format("{} {} peak, {} of memory at {}", human_flops_rate(device.peak(precision)),
                       name_of(precision), human_bytes(device.memory_bytes),
                       human_rate(device.memory_bandwidth_bytes_per_s)),
           name_of(foundation_of(device)), device.source);
  // Readers fill in the device's price where a cluster says none.
  const bool own = group.node.price_usd_per_device_hour > 0 &&
                   group.node.price_usd_per_device_hour != device.price_usd_per_hour;
  const double price = own ? group.node.price_usd_per_device_hour : device.price_usd_per_hour;
  list.add(fmt::format("Price of {}", device.name),
           price > 0 ? fmt::format("{:.2f} USD an hour of one device", price)
                     : "not stated: nothing is said of cost",
           price <= 0                          ? ""
           : own || device.price_as_of.empty() ? "assumed"
                                               : "list price",
           price_source(cluster, device, own, price));
  if (device.peak_power_w > 0)
    list.add(fmt::format("Power of {}", device.name),
             fmt::format("{:.0f} W idle, {:.0f} W computing, {:.0f} W of a node beside its devices",
                         device.idle_power_w, device.peak_power_w, group.node.host_power_w),
             "datasheet", device.source);
}

void add_workload(const Job& job, List& list) {
  const Workload& workload = job.workload;
  list.add(fmt::format("Model {}", workload.name),
           fmt::format("{} parameters", human_count(static_cast<double>(workload.parameters()))), "", "");
  for (const std::string& sentence : describe(workload, job.training.seq_len, job.training.precision).assumed)
    list.add("Of the model", sentence, "assumed", "");
}

}  // namespace

Json assumptions_json(const Plan& plan) {
  const Job& job = *plan.job;
  List list;
  add_workload(job, list);
  const planner::RestsOn rests_on = planner::spread_of(job).rests_on;
  list.add(fmt::format("Software {}", job.runtime.name), job.runtime.description, name_of(rests_on.runtime),
           job.runtime.source);
  if (!job.runtime.fitted.empty())
    list.add(fmt::format("Fitted of {}", job.runtime.name),
             fmt::format("{}", fmt::join(job.runtime.fitted, ", ")), "fitted", job.runtime.source);
  list.add(fmt::format("Cluster {}", job.cluster.name), job.cluster.description, "", job.cluster.source);
  std::set<std::pair<int, double>> seen;
  for (const NodeGroup& group : job.cluster.groups)
    if (seen.insert({group.node.profile, group.node.price_usd_per_device_hour}).second)
      add_device(job.cluster, group, job.training.precision, list);
  const CommunicationProfile& communication = job.cluster.communication;
  list.add(fmt::format("Collectives by {}", name_of(communication.library)),
           fmt::format("long messages between nodes reach {:.0f}% of a port's rate",
                       100 * communication.network_efficiency),
           name_of(rests_on.network), communication.source);
  if (const auto& calibration = job.cluster.calibration)
    list.add("Measured on this cluster",
             fmt::format("{} and {}", counted(calibration->steps, "step"),
                         counted(calibration->collectives, "collective")),
             "calibrated", calibration->source);
  list.add("Whole runs", "no failures, no checkpoints, no waiting for data: a step times their number",
           "assumed", "");
  return list.list;
}

}  // namespace orrery
