// The smaller answers, as JSON.
#include <algorithm>

#include "orrery/json.h"
#include "topologies/link_class.h"

namespace orrery {
namespace {

Json figures(const CatalogEntry& entry) {
  Json one = {{"name", entry.name}, {"description", entry.description}};
  if (!entry.source.empty()) one["source"] = entry.source;
  if (!entry.rests_on.empty()) one["rests_on"] = entry.rests_on;
  return one;
}

Json figures(const CatalogWorkload& workload) {
  Json one = figures(static_cast<const CatalogEntry&>(workload));
  one.update({{"parameters", workload.parameters},
              {"active_parameters", workload.active_parameters},
              {"layers", workload.layers},
              {"seq_len", workload.seq_len},
              {"forward_flops", workload.forward_flops}});
  return one;
}

Json figures(const CatalogCluster& cluster) {
  Json one = figures(static_cast<const CatalogEntry&>(cluster));
  if (cluster.device.empty()) return one;
  one.update({{"device", cluster.device},
              {"devices", cluster.devices},
              {"memory_bytes", cluster.memory_bytes},
              {"link_bytes_per_s", cluster.link_bytes_per_s},
              {"network_bytes_per_s", cluster.network_bytes_per_s}});
  if (cluster.price_usd_per_device_hour > 0)
    one.update({{"price_usd_per_device_hour", cluster.price_usd_per_device_hour},
                {"price_as_of", cluster.price_as_of}});
  return one;
}

Json figures(const CatalogDevice& device) {
  Json one = figures(static_cast<const CatalogEntry&>(device));
  Json peaks = Json::object();
  for (const auto& [type, peak] : device.peak_flops_per_s) peaks[std::string(name_of(type))] = peak;
  one.update({{"memory_bytes", device.memory_bytes},
              {"memory_bandwidth_bytes_per_s", device.memory_bandwidth_bytes_per_s},
              {"peak_flops_per_s", peaks}});
  if (device.price_usd_per_hour > 0)
    one.update({{"price_usd_per_hour", device.price_usd_per_hour}, {"price_as_of", device.price_as_of}});
  return one;
}

template <typename Entry>
Json list_of(const std::vector<Entry>& entries) {
  Json list = Json::array();
  for (const Entry& entry : entries) list.push_back(figures(entry));
  return list;
}

}  // namespace

Json to_json(const Catalog& catalog) {
  return {{"workloads", list_of(catalog.workloads)}, {"clusters", list_of(catalog.clusters)},
          {"networks", list_of(catalog.networks)},   {"devices", list_of(catalog.devices)},
          {"links", list_of(catalog.links)},         {"runtimes", list_of(catalog.runtimes)}};
}

Json to_json(const DeviceCheck& check) {
  Json devices = Json::array();
  for (const DeviceOutlook& outlook : check.outlooks) {
    Json narrowed_by = Json::array();
    for (const auto& [measurement, share] : outlook.measurements)
      narrowed_by.push_back({{"measurement", measurement}, {"share", share}});
    devices.push_back({{"name", outlook.device},
                       {"step_time_low", outlook.step.low},
                       {"step_time_high", outlook.step.high},
                       {"rests_on", to_json(outlook.rests_on)},
                       {"narrowed_by", narrowed_by}});
  }
  return {{"implausible", check.review.implausible}, {"assumed", check.review.assumed}, {"devices", devices}};
}

Json to_json(const Cluster& cluster) {
  Json groups = Json::array();
  for (const NodeGroup& group : cluster.groups) {
    const DeviceProfile& device = cluster.profiles[group.node.profile];
    groups.push_back({{"nodes", group.count},
                      {"devices", group.node.devices},
                      {"device", device.name},
                      {"profile", device.calibrated ? "calibrated" : "datasheet"},
                      {"profile_source", device.source},
                      {"memory_bytes", device.memory_bytes},
                      {"network_ports", group.node.nic.count},
                      {"memory_bandwidth_bytes_per_s", device.memory_bandwidth_bytes_per_s},
                      {"peak_fp32_flops_per_s", device.peak(DType::fp32)}});
  }
  return {{"name", cluster.name},
          {"description", cluster.description},
          {"source", cluster.source},
          {"collectives", name_of(cluster.communication.library)},
          {"collectives_source", cluster.communication.source},
          {"links_rest_on", name_of(links_foundation(cluster))},
          {"nodes", cluster.nodes()},
          {"devices", cluster.devices()},
          {"groups", groups}};
}

Json to_json(const Simulated& simulated) {
  const sim::Simulation& simulation = simulated.evaluation.simulation.value();
  Json links = Json::array();
  for (std::size_t i = 0; i < std::min(simulation.links.size(), kLinksReported); ++i) {
    const sim::LinkLoad& link = simulation.links[i];
    links.push_back({{"name", link.name}, {"utilization", link.utilization}, {"bytes", link.bytes}});
  }
  Json json = to_json(*simulated.evaluation.plan.job);
  json.update(to_json(simulated.evaluation));
  json["ranks"] = simulation.ranks;
  json["simulated_ranks"] = simulation.simulated_ranks;
  json["events"] = simulation.events;
  json["step_ends_s"] = simulation.step_ends_s;
  json["wall_s"] = simulated.wall_s;
  json["links"] = links;
  return json;
}

Json to_json(const CollectiveRequest& request, const std::vector<CollectiveTime>& times) {
  Json results = Json::array();
  for (const CollectiveTime& time : times)
    results.push_back({{"bytes", time.bytes},
                       {"time_s", time.time_s},
                       {"algbw_bytes_per_s", time.algbw_bytes_per_s},
                       {"busbw_bytes_per_s", time.busbw_bytes_per_s},
                       {"algorithm", name_of(time.algorithm)},
                       {"protocol", name_of(time.protocol)},
                       {"events", time.events},
                       {"wall_s", time.wall_s}});
  return {{"op", name_of(request.kind)},
          {"cluster", request.cluster.name},
          {"devices", request.cluster.devices()},
          {"nodes", request.cluster.nodes()},
          {"detail", request.detail == sim::Detail::messages ? "messages" : "flows"},
          {"rests_on", {{"network", name_of(planner::network_foundation(request.cluster))}}},
          {"results", results}};
}

Json to_json(std::string_view target, const std::vector<planner::ExportedFile>& files) {
  Json listed = Json::array();
  for (const planner::ExportedFile& file : files) {
    listed.push_back({{"name", file.name}});
    if (file.binary)
      listed.back()["bytes"] = file.content.size();
    else
      listed.back()["content"] = file.content;
  }
  return {{"target", target}, {"files", listed}};
}

}  // namespace orrery
