// Cluster <-> proto::Cluster, with every check of cluster.h.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <tuple>

#include "base/error.h"
#include "proto/cluster.pb.h"
#include "proto/field_check.h"
#include "topologies/cluster.h"
#include "topologies/communication_defaults.h"
#include "topologies/device_catalog.h"
#include "topologies/intra_node_proto.h"
#include "topologies/link_class.h"

namespace orrery {
namespace {

constexpr int kMaxPorts = 1024;
constexpr int kMostRanks = 1 << 24;

Nic read_nic(const proto::NodeType& message, const FieldCheck& node) {
  const proto::Nic& from = message.nic();
  const FieldCheck check = node.inside("nic");
  Nic nic;
  nic.count = check.within("count", from.count(), 0, kMaxPorts);
  nic.bandwidth_bytes_per_s =
      nic.count > 0 ? check.rate("bandwidth_bytes_per_s",
                                 check.positive("bandwidth_bytes_per_s", from.bandwidth_bytes_per_s()))
                    : check.rate("bandwidth_bytes_per_s", from.bandwidth_bytes_per_s());
  nic.latency_s = check.latency("latency_s", from.latency_s());
  nic.direct = from.direct();
  nic.pcie_bandwidth_bytes_per_s =
      check.rate("pcie_bandwidth_bytes_per_s", from.pcie_bandwidth_bytes_per_s());
  const int devices = message.devices();
  if (from.of_device_size() > 0 && from.of_device_size() != (nic.count > 0 ? devices : 0))
    check.fail("of_device", fmt::format("of_device has {} entries", from.of_device_size()),
               nic.count > 0 ? fmt::format("expected one for each of the {} devices", devices)
                             : "expected none: the node has no ports");
  for (const int port : from.of_device()) {
    if (port < 0 || port >= nic.count)
      check.fail("of_device", fmt::format("a device uses port {}", port),
                 fmt::format("expected from 0 to {}", nic.count - 1));
    nic.of_device.push_back(port);
  }
  if (nic.of_device.empty() && nic.count > 0) {
    for (int d = 0; d < devices; ++d) nic.of_device.push_back(d * nic.count / devices);
  }
  return nic;
}

int profile_index(Cluster& cluster, const std::string& name, const FieldCheck& node) {
  node.named("device", name);
  for (std::size_t i = 0; i < cluster.profiles.size(); ++i) {
    if (cluster.profiles[i].name == name) return static_cast<int>(i);
  }
  try {
    cluster.profiles.push_back(catalog_device(name));
  } catch (const UserError& error) {
    node.fail("device", error.what(), "");
  }
  return static_cast<int>(cluster.profiles.size()) - 1;
}

NodeType read_node(const proto::NodeType& from, const FieldCheck& check, Cluster& cluster) {
  NodeType node;
  node.name = from.name();
  node.profile = profile_index(cluster, from.device(), check);
  node.devices = check.within("devices", from.devices(), 1, kMaxDevicesPerNode);
  node.intra = read_intra(from, check);
  node.nic = read_nic(from, check);
  node.shared_cores = check.within("shared_cores", from.shared_cores(), 0, kMaxDevicesPerNode);
  node.host_memory_bytes = check.not_negative("host_memory_bytes", from.host_memory_bytes());
  node.storage_read_bytes_per_s = check.rate("storage_read_bytes_per_s", from.storage_read_bytes_per_s());
  node.storage_write_bytes_per_s = check.rate("storage_write_bytes_per_s", from.storage_write_bytes_per_s());
  node.price_usd_per_device_hour =
      check.not_negative("price_usd_per_device_hour", from.price_usd_per_device_hour());
  if (node.price_usd_per_device_hour == 0)
    node.price_usd_per_device_hour = cluster.profiles[node.profile].price_usd_per_hour;
  node.host_power_w = check.not_negative("host_power_w", from.host_power_w());
  node.hosts.assign(from.hosts().begin(), from.hosts().end());
  return node;
}

void read_groups(const proto::Cluster& message, const FieldCheck& check, Cluster& cluster) {
  if (message.groups_size() == 0)
    check.fail("groups", "the cluster has no nodes", "expected at least one group of nodes");
  double devices = 0;
  std::int64_t nodes = 0;
  for (int g = 0; g < message.groups_size(); ++g) {
    const FieldCheck at = check.inside("groups", g);
    NodeGroup group;
    group.node = read_node(message.groups(g).node(), at.inside("node"), cluster);
    group.count = at.within("count", message.groups(g).count(), 1, kMaxNodes);
    nodes += group.count;
    devices += static_cast<double>(group.count) * group.node.devices;
    if (nodes > kMaxNodes || devices > kMaxDevices)
      at.fail("count", fmt::format("{} nodes with {} devices are too many", nodes, devices),
              fmt::format("expected at most {} nodes and {} devices", kMaxNodes, kMaxDevices));
    if (!group.node.hosts.empty() && static_cast<int>(group.node.hosts.size()) != group.count)
      at.inside("node").fail("hosts",
                             fmt::format("{} host names for {} nodes", group.node.hosts.size(), group.count),
                             "expected one a node, or none");
    cluster.groups.push_back(std::move(group));
  }
  for (int g = 0; nodes > 1 && g < message.groups_size(); ++g) {
    if (cluster.groups[g].node.nic.count == 0)
      check.inside("groups", g)
          .inside("node")
          .fail("nic",
                fmt::format("the cluster has {} nodes, but those of group {} have no network port", nodes, g),
                "expected nic.count of at least 1: the fabric must join all nodes");
  }
}

FabricKind read_fabric_kind(const proto::Fabric& from, bool alone, const FieldCheck& check) {
  switch (from.kind()) {
    case proto::Fabric::STAR:
      return FabricKind::star;
    case proto::Fabric::FAT_TREE:
      return FabricKind::fat_tree;
    case proto::Fabric::RAIL_FAT_TREE:
      return FabricKind::rail_fat_tree;
    case proto::Fabric::TORUS:
      return FabricKind::torus;
    case proto::Fabric::DRAGONFLY:
      return FabricKind::dragonfly;
    default:
      if (alone && from.kind() == proto::Fabric::UNSPECIFIED) return FabricKind::star;
      check.fail("kind", "the fabric between the nodes is not said, so they are not connected",
                 "expected STAR, FAT_TREE, RAIL_FAT_TREE, TORUS or DRAGONFLY");
  }
}

Transport read_transport(const proto::Fabric& from, bool alone, const FieldCheck& check) {
  switch (from.transport()) {
    case proto::Fabric::INFINIBAND:
      return Transport::infiniband;
    case proto::Fabric::ROCE:
      return Transport::roce;
    case proto::Fabric::TCP:
      return Transport::tcp;
    case proto::Fabric::HOST:
      if (!alone)
        check.fail("transport", "transport HOST joins the processes of one host",
                   "expected INFINIBAND, ROCE or TCP");
      return Transport::host;
    default:
      if (alone && from.transport() == proto::Fabric::TRANSPORT_UNSPECIFIED) return Transport::host;
      check.fail("transport", "the fabric's transport is not said", "expected INFINIBAND, ROCE or TCP");
  }
}

void read_dragonfly(const proto::Fabric& from, int nodes, const FieldCheck& check, Fabric& fabric) {
  fabric.groups = check.within("groups", from.groups(), 1, kMaxNodes);
  fabric.routers = check.within("routers", from.routers(), 1, kMaxNodes);
  fabric.nodes_per_router = check.within("nodes_per_router", from.nodes_per_router(), 1, kMaxNodes);
  const double per_group = static_cast<double>(fabric.routers) * fabric.nodes_per_router;
  if (nodes > per_group * fabric.groups || nodes <= per_group * (fabric.groups - 1))
    check.fail("groups",
               fmt::format("a dragonfly of {} groups of {} routers with {} nodes each, for {} nodes",
                           fabric.groups, fabric.routers, fabric.nodes_per_router, nodes),
               "expected room for all of them and no empty group");
  if (fabric.groups > 1)
    check.rate("global_bandwidth_bytes_per_s",
               check.positive("global_bandwidth_bytes_per_s", from.global_bandwidth_bytes_per_s()));
}

Fabric read_fabric(const proto::Cluster& message, const FieldCheck& cluster_check, int nodes) {
  const proto::Fabric& from = message.fabric();
  const FieldCheck check = cluster_check.inside("fabric");
  const bool alone = nodes == 1;
  Fabric fabric;
  fabric.kind = read_fabric_kind(from, alone, check);
  fabric.transport = read_transport(from, alone, check);
  fabric.switch_latency_s = check.latency("switch_latency_s", from.switch_latency_s());
  fabric.nodes_per_leaf = check.within("nodes_per_leaf", from.nodes_per_leaf(), 0, kMaxNodes);
  if (fabric.kind == FabricKind::fat_tree || fabric.kind == FabricKind::rail_fat_tree)
    check.within("nodes_per_leaf", from.nodes_per_leaf(), 1, kMaxNodes);
  fabric.oversubscription =
      from.oversubscription() == 0 ? 1 : check.positive("oversubscription", from.oversubscription());
  fabric.link_bandwidth_bytes_per_s =
      check.rate("link_bandwidth_bytes_per_s", from.link_bandwidth_bytes_per_s());
  fabric.global_bandwidth_bytes_per_s =
      check.rate("global_bandwidth_bytes_per_s", from.global_bandwidth_bytes_per_s());
  fabric.global_latency_s = check.latency("global_latency_s", from.global_latency_s());
  fabric.hashes_flows = from.routing() == proto::Fabric::ECMP;
  if (fabric.hashes_flows && fabric.kind != FabricKind::fat_tree && fabric.kind != FabricKind::rail_fat_tree)
    check.fail("routing", "ECMP in a fabric that is no tree", "expected kind FAT_TREE or RAIL_FAT_TREE");
  if (from.flows_per_port() != 0)
    fabric.flows_per_port = check.within("flows_per_port", from.flows_per_port(), 1, 1024);
  if (fabric.kind == FabricKind::torus) fabric.torus = read_dimensions(from.torus(), nodes, "nodes", check);
  if (fabric.kind == FabricKind::dragonfly) read_dragonfly(from, nodes, check, fabric);
  return fabric;
}

CommunicationProfile read_communication(const proto::Cluster& message, const FieldCheck& cluster_check,
                                        const Cluster& cluster) {
  const proto::CommunicationProfile& from = message.communication();
  const FieldCheck check = cluster_check.inside("communication");
  CommunicationLibrary library = default_library(cluster.profiles[cluster.groups[0].node.profile]);
  if (!from.library().empty()) {
    const auto named = library_from_name(from.library());
    if (!named)
      check.fail("library", fmt::format("unknown communication library '{}'", from.library()),
                 "expected nccl, rccl, hccl, gaudi-hccl, oneccl, xla, neuron, mpi or unknown");
    library = *named;
  }
  CommunicationProfile profile = default_communication(library, cluster.fabric.transport);
  if (!from.source().empty()) profile.source = from.source();
  profile.calibrated = from.calibrated();
  const auto take = [&](std::string_view field, double given, double& value) {
    if (check.not_negative(field, given) > 0) value = given;
  };
  take("point_to_point_latency_s", from.point_to_point_latency_s(), profile.point_to_point_latency_s);
  take("point_to_point_bytes_per_s", from.point_to_point_bytes_per_s(), profile.point_to_point_bytes_per_s);
  take("reduce_bytes_per_s", from.reduce_bytes_per_s(), profile.reduce_bytes_per_s);
  take("network_latency_s", from.network_latency_s(), profile.network_latency_s);
  take("collective_overhead_s", from.collective_overhead_s(), profile.collective_overhead_s);
  take("eager_bytes", from.eager_bytes(), profile.eager_bytes);
  take("network_eager_bytes", from.network_eager_bytes(), profile.network_eager_bytes);
  take("network_processor_s_per_byte", from.network_processor_s_per_byte(),
       profile.network_processor_s_per_byte);
  take("network_flow_spread", from.network_flow_spread(), profile.network_flow_spread);
  take("latency_scale", from.latency_scale(), profile.latency_scale);
  if (from.network_efficiency() != 0)
    profile.network_exchange_efficiency = profile.network_efficiency =
        check.fraction("network_efficiency", from.network_efficiency());
  if (from.network_exchange_efficiency() != 0)
    profile.network_exchange_efficiency =
        check.fraction("network_exchange_efficiency", from.network_exchange_efficiency());
  if (from.intra_efficiency() != 0)
    profile.intra_efficiency = check.fraction("intra_efficiency", from.intra_efficiency());
  for (int i = 0; i < from.message_times_size(); ++i) {
    const FieldCheck at = check.inside("message_times", i);
    const proto::MessageTime& time = from.message_times(i);
    const MessageTime read = {at.positive("bytes", time.bytes()), at.positive("one_way_s", time.one_way_s()),
                              at.positive("exchange_s", time.exchange_s())};
    if (!profile.message_times.empty() && read.bytes <= profile.message_times.back().bytes)
      at.fail("bytes", "message_times are not in ascending order",
              "expected more bytes than the entry before");
    profile.message_times.push_back(read);
  }
  return profile;
}

Override read_override(const proto::Override& from, const FieldCheck& check, const Cluster& cluster) {
  Override o;
  o.node = check.within("node", from.node(), 0, cluster.nodes() - 1);
  const NodeType& node = cluster.node_type(o.node);
  if (from.target() == "device") {
    o.target = OverrideTarget::device;
    o.device = check.within("device", from.device(), 0, node.devices - 1);
  } else if (from.target() == "nic") {
    o.target = OverrideTarget::nic;
    if (node.nic.count == 0) check.fail("target", "the node has no network port", "expected device or node");
    o.port = check.within("port", from.port(), 0, node.nic.count - 1);
  } else if (from.target() == "node") {
    o.target = OverrideTarget::node;
  } else {
    check.fail("target", fmt::format("unknown target '{}'", from.target()), "expected device, nic or node");
  }
  if (o.target != OverrideTarget::device && from.device() != 0)
    check.fail("device", "a device is given, but the target is another", "expected target: \"device\"");
  if (o.target != OverrideTarget::nic && from.port() != 0)
    check.fail("port", "a port is given, but the target is another", "expected target: \"nic\"");
  if (from.speed() != 0)
    check.fraction("speed", from.speed());
  else if (o.target != OverrideTarget::nic)  // a port may be dead
    check.fail("speed", "the speed is 0",
               "expected a fraction above 0 and up to 1: leave a dead device or node out of the cluster");
  o.speed = from.speed();
  return o;
}

void read_overrides(const proto::Cluster& message, const FieldCheck& check, Cluster& cluster) {
  std::set<std::tuple<OverrideTarget, int, int>> seen;
  for (int i = 0; i < message.overrides_size(); ++i) {
    const FieldCheck at = check.inside("overrides", i);
    const Override o = read_override(message.overrides(i), at, cluster);
    if (!seen.insert({o.target, o.node, o.target == OverrideTarget::nic ? o.port : o.device}).second)
      at.fail("target", "two overrides of one thing", "expected one");
    cluster.overrides.push_back(o);
  }
}

// Far beyond any factor that a measurement leaves plausible, and far more models than are measured on one
// cluster.
constexpr double kMostLogFactor = 5;
constexpr int kMostEffects = 192;

MeasuredPlan read_measured_plan(const proto::MeasuredPlan& from, const FieldCheck& check) {
  const auto degree = [&](const char* field, int value) { return check.within(field, value, 1, kMostRanks); };
  return {check.within("steps", from.steps(), 1, std::numeric_limits<int>::max()),
          check.positive("micro_batch_tokens", from.micro_batch_tokens()),
          check.positive("micro_batches", from.micro_batches()),
          degree("tp", from.tp()),
          degree("pp", from.pp()),
          degree("cp", from.cp()),
          degree("ep", from.ep()),
          degree("interleave", from.interleave()),
          from.precision()};
}

void write_measured_plan(const MeasuredPlan& plan, proto::MeasuredPlan* to) {
  to->set_steps(plan.steps);
  to->set_micro_batch_tokens(plan.micro_batch_tokens);
  to->set_micro_batches(plan.micro_batches);
  to->set_tp(plan.tp);
  to->set_pp(plan.pp);
  to->set_cp(plan.cp);
  to->set_ep(plan.ep);
  to->set_interleave(plan.interleave);
  to->set_precision(plan.precision);
}

SiteCalibration read_calibration(const proto::SiteCalibration& from, const FieldCheck& check) {
  const int effects = check.within("effect", from.effect_size(), 0, kMostEffects);
  if (from.mean_size() != effects)
    check.fail("mean", fmt::format("{} means of {} effects", from.mean_size(), effects), "one each");
  if (from.covariance_size() != effects * (effects + 1) / 2)
    check.fail("covariance", fmt::format("{} figures for {} effects", from.covariance_size(), effects),
               "the lower triangle, row by row");
  SiteCalibration read{from.source(),
                       from.runtime(),
                       from.steps(),
                       from.collectives(),
                       {from.effect().begin(), from.effect().end()},
                       {from.mean().begin(), from.mean().end()},
                       {from.covariance().begin(), from.covariance().end()},
                       check.not_negative("own_sd", from.own_sd()),
                       {},
                       check.not_negative("alike_sd", from.alike_sd())};
  check.within("plan", from.plan_size(), 0, effects);
  for (int i = 0; i < from.plan_size(); ++i)
    read.plans.push_back(read_measured_plan(from.plan(i), check.inside("plan", i)));
  const auto bounded = [](double value) { return std::abs(value) <= kMostLogFactor; };
  if (!std::all_of(read.mean.begin(), read.mean.end(), bounded))
    check.fail("mean", "a factor beyond any", "logarithms of factors on time");
  if (!std::all_of(read.covariance.begin(), read.covariance.end(), bounded))
    check.fail("covariance", "a variance beyond any", "of logarithms of factors on time");
  for (int i = 0; i < effects; ++i)
    if (read.covariance_of(i, i) < 0) check.fail("covariance", "a negative variance", "at least 0");
  return read;
}

void write_calibration(const SiteCalibration& calibration, proto::SiteCalibration* to) {
  to->set_source(calibration.source);
  to->set_runtime(calibration.runtime);
  to->set_steps(calibration.steps);
  to->set_collectives(calibration.collectives);
  for (const std::string& effect : calibration.effects) to->add_effect(effect);
  for (const double mean : calibration.mean) to->add_mean(mean);
  for (const double value : calibration.covariance) to->add_covariance(value);
  to->set_own_sd(calibration.own_sd);
  for (const MeasuredPlan& plan : calibration.plans) write_measured_plan(plan, to->add_plan());
  to->set_alike_sd(calibration.alike_sd);
}

void write_node(const Cluster& cluster, const NodeType& node, proto::NodeType* to) {
  to->set_name(node.name);
  to->set_device(cluster.profiles[node.profile].name);
  to->set_devices(node.devices);
  write_intra(node.intra, to->mutable_intra());
  auto* nic = to->mutable_nic();
  nic->set_count(node.nic.count);
  nic->set_bandwidth_bytes_per_s(node.nic.bandwidth_bytes_per_s);
  nic->set_latency_s(node.nic.latency_s);
  for (const int port : node.nic.of_device) nic->add_of_device(port);
  nic->set_direct(node.nic.direct);
  nic->set_pcie_bandwidth_bytes_per_s(node.nic.pcie_bandwidth_bytes_per_s);
  to->set_shared_cores(node.shared_cores);
  to->set_host_memory_bytes(node.host_memory_bytes);
  to->set_storage_read_bytes_per_s(node.storage_read_bytes_per_s);
  to->set_storage_write_bytes_per_s(node.storage_write_bytes_per_s);
  to->set_price_usd_per_device_hour(node.price_usd_per_device_hour);
  to->set_host_power_w(node.host_power_w);
  for (const std::string& host : node.hosts) to->add_hosts(host);
}

void write_fabric(const Fabric& fabric, proto::Fabric* to) {
  to->set_kind(static_cast<proto::Fabric::Kind>(static_cast<int>(fabric.kind) + 1));
  to->set_transport(static_cast<proto::Fabric::Transport>(static_cast<int>(fabric.transport) + 1));
  to->set_switch_latency_s(fabric.switch_latency_s);
  to->set_nodes_per_leaf(fabric.nodes_per_leaf);
  to->set_oversubscription(fabric.oversubscription);
  to->set_link_bandwidth_bytes_per_s(fabric.link_bandwidth_bytes_per_s);
  for (const int size : fabric.torus) to->add_torus(size);
  to->set_groups(fabric.groups);
  to->set_routers(fabric.routers);
  to->set_nodes_per_router(fabric.nodes_per_router);
  to->set_global_bandwidth_bytes_per_s(fabric.global_bandwidth_bytes_per_s);
  to->set_global_latency_s(fabric.global_latency_s);
  if (fabric.hashes_flows) {
    to->set_routing(proto::Fabric::ECMP);
    to->set_flows_per_port(fabric.flows_per_port);
  }
}

void write_communication(const CommunicationProfile& profile, proto::CommunicationProfile* to) {
  to->set_library(std::string(name_of(profile.library)));
  to->set_source(profile.source);
  to->set_calibrated(profile.calibrated);
  to->set_point_to_point_latency_s(profile.point_to_point_latency_s);
  to->set_point_to_point_bytes_per_s(profile.point_to_point_bytes_per_s);
  to->set_reduce_bytes_per_s(profile.reduce_bytes_per_s);
  to->set_network_latency_s(profile.network_latency_s);
  to->set_network_efficiency(profile.network_efficiency);
  to->set_intra_efficiency(profile.intra_efficiency);
  to->set_collective_overhead_s(profile.collective_overhead_s);
  to->set_eager_bytes(profile.eager_bytes);
  to->set_network_exchange_efficiency(profile.network_exchange_efficiency);
  to->set_network_eager_bytes(profile.network_eager_bytes);
  to->set_network_processor_s_per_byte(profile.network_processor_s_per_byte);
  to->set_network_flow_spread(profile.network_flow_spread);
  if (profile.latency_scale != 1) to->set_latency_scale(profile.latency_scale);
  for (const MessageTime& time : profile.message_times) {
    proto::MessageTime* entry = to->add_message_times();
    entry->set_bytes(time.bytes);
    entry->set_one_way_s(time.one_way_s);
    entry->set_exchange_s(time.exchange_s);
  }
}

}  // namespace

int SiteCalibration::at(std::string_view effect) const {
  const auto found = std::find(effects.begin(), effects.end(), effect);
  return found == effects.end() ? -1 : static_cast<int>(found - effects.begin());
}

double SiteCalibration::covariance_of(int a, int b) const {
  const auto row = static_cast<std::size_t>(std::max(a, b));
  return covariance[row * (row + 1) / 2 + static_cast<std::size_t>(std::min(a, b))];
}

Cluster cluster_from_proto(const proto::Cluster& message, std::string_view file, std::string_view text) {
  return cluster_from_proto(message, FieldCheck(file, text, *proto::Cluster::descriptor()));
}

Cluster cluster_from_proto(const proto::Cluster& message, const FieldCheck& check) {
  Cluster cluster;
  cluster.name = check.named("name", message.name());
  cluster.description = message.description();
  cluster.source = message.source();
  for (int i = 0; i < message.devices_size(); ++i) {
    const FieldCheck at = check.inside("devices", i);
    cluster.profiles.push_back(device_profile_from_proto(message.devices(i), at));
    for (int j = 0; j < i; ++j) {
      if (cluster.profiles[j].name == cluster.profiles[i].name)
        at.fail("name", fmt::format("two device profiles are named '{}'", cluster.profiles[i].name),
                "expected one");
    }
  }
  read_groups(message, check, cluster);
  cluster.fabric = read_fabric(message, check, cluster.nodes());
  cluster.communication = read_communication(message, check, cluster);
  read_overrides(message, check, cluster);
  cluster.shared_cores = check.within("shared_cores", message.shared_cores(), 0, kMaxDevicesPerNode);
  if (message.has_calibration())
    cluster.calibration = read_calibration(message.calibration(), check.inside("calibration"));
  return cluster;
}

Cluster rechecked(const Cluster& cluster, std::string_view file) {
  proto::Cluster message;
  to_proto(cluster, &message);
  return cluster_from_proto(message, file, {});
}

void to_proto(const Cluster& cluster, proto::Cluster* message) {
  message->Clear();
  message->set_name(cluster.name);
  message->set_description(cluster.description);
  message->set_source(cluster.source);
  for (const NodeGroup& group : cluster.groups) {
    auto* to = message->add_groups();
    write_node(cluster, group.node, to->mutable_node());
    to->set_count(group.count);
  }
  write_fabric(cluster.fabric, message->mutable_fabric());
  for (const DeviceProfile& profile : cluster.profiles) to_proto(profile, message->add_devices());
  write_communication(cluster.communication, message->mutable_communication());
  message->set_shared_cores(cluster.shared_cores);
  if (cluster.calibration) write_calibration(*cluster.calibration, message->mutable_calibration());
  for (const Override& o : cluster.overrides) {
    auto* to = message->add_overrides();
    to->set_node(o.node);
    to->set_device(o.device);
    to->set_port(o.port);
    to->set_target(o.target == OverrideTarget::device ? "device"
                   : o.target == OverrideTarget::nic  ? "nic"
                                                      : "node");
    to->set_speed(o.speed);
  }
}

}  // namespace orrery
