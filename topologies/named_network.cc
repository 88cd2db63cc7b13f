#include "topologies/named_network.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/embedded.h"
#include "base/error.h"
#include "base/suggest.h"
#include "proto/link_class.pb.h"
#include "proto/textproto.h"
#include "topologies/communication_defaults.h"

namespace orrery {

const std::vector<EmbeddedFile>& embedded_networks();

namespace {

constexpr std::array<std::pair<std::string_view, Transport>, 4> kTransports = {{
    {"infiniband", Transport::infiniband},
    {"roce", Transport::roce},
    {"tcp", Transport::tcp},
    {"host", Transport::host},
}};
constexpr int kNodesPerLeaf = 16;  // of a tree that was none before

proto::NamedNetwork parsed_network(const EmbeddedFile& file) {
  proto::NamedNetwork network;
  parse_textproto(file.content, file.name, &network);
  return network;
}

proto::NamedNetwork named(std::string_view name) {
  std::vector<std::string> known;
  for (const EmbeddedFile& file : embedded_networks()) {
    if (file.name == name) return parsed_network(file);
    known.emplace_back(file.name);
  }
  throw UserError(fmt::format("unknown network '{}'", name), suggestion(name, known));
}

void set_ports(const proto::NamedNetwork& network, NodeType& node) {
  const int wanted = network.ports() > 0 ? network.ports() : node.devices;
  const int ports = std::min(wanted, node.devices);
  node.nic.count = ports;
  node.nic.bandwidth_bytes_per_s = network.port_bytes_per_s() * wanted / ports;
  node.nic.latency_s = network.latency_s();
  node.nic.direct = network.direct();
  node.nic.of_device.clear();
  for (int d = 0; d < node.devices; ++d) node.nic.of_device.push_back(d * ports / node.devices);
}

void set_fabric(const proto::NamedNetwork& network, bool rails, Fabric& fabric) {
  fabric.transport = transport_from_name(network.transport());
  fabric.switch_latency_s = network.switch_latency_s();
  fabric.link_bandwidth_bytes_per_s = fabric.global_bandwidth_bytes_per_s = 0;
  if (fabric.kind == FabricKind::torus || fabric.kind == FabricKind::dragonfly)
    fabric.kind = FabricKind::fat_tree;
  if (fabric.kind == FabricKind::rail_fat_tree && !rails) fabric.kind = FabricKind::fat_tree;
  if (fabric.nodes_per_leaf == 0) fabric.nodes_per_leaf = kNodesPerLeaf;
  fabric.hashes_flows = network.routing() == "ecmp";
  ORRERY_CHECK(fabric.hashes_flows || network.routing().empty() || network.routing() == "adaptive",
               "a network of an unknown routing");
  fabric.torus.clear();
  fabric.groups = fabric.routers = fabric.nodes_per_router = 0;
}

}  // namespace

std::string_view name_of(Transport transport) {
  for (const auto& [name, named] : kTransports)
    if (named == transport) return name;
  throw InternalError("a transport without a name");
}

Transport transport_from_name(std::string_view name) {
  for (const auto& [known, transport] : kTransports)
    if (known == name) return transport;
  throw UserError(fmt::format("unknown transport '{}'", name), "expected infiniband, roce, tcp or host");
}

std::vector<CatalogEntry> catalog_networks() {
  std::vector<CatalogEntry> entries;
  for (const EmbeddedFile& file : embedded_networks()) {
    const proto::NamedNetwork network = parsed_network(file);
    entries.push_back({network.name(), network.description(), network.source(), network.rests_on()});
  }
  std::sort(entries.begin(), entries.end(),
            [](const CatalogEntry& a, const CatalogEntry& b) { return a.name < b.name; });
  return entries;
}

Cluster with_network(Cluster cluster, std::string_view name) {
  const proto::NamedNetwork network = named(name);
  bool rails = true;
  for (NodeGroup& group : cluster.groups) {
    set_ports(network, group.node);
    rails = rails && group.node.nic.count == group.node.devices;
  }
  set_fabric(network, rails, cluster.fabric);
  // The ports that an override named are others now.
  std::erase_if(cluster.overrides, [](const Override& o) { return o.target == OverrideTarget::nic; });
  const CommunicationProfile spoken =
      default_communication(cluster.communication.library, cluster.fabric.transport);
  CommunicationProfile& profile = cluster.communication;
  profile.network_efficiency = network.efficiency() > 0 ? network.efficiency() : spoken.network_efficiency;
  profile.network_exchange_efficiency = profile.network_efficiency;
  profile.network_latency_s = spoken.network_latency_s;
  profile.network_eager_bytes = spoken.network_eager_bytes;
  return cluster;
}

Cluster with_intra_node_times(Cluster cluster, double times) {
  for (NodeGroup& group : cluster.groups) {
    group.node.intra.bandwidth_bytes_per_s *= times;
    group.node.intra.bridge_bandwidth_bytes_per_s *= times;
  }
  CommunicationProfile& library = cluster.communication;
  library.point_to_point_bytes_per_s *= times;
  const auto quicker = [&](double& seconds) {
    const double latency_s = std::min(seconds, library.point_to_point_latency_s);
    seconds = latency_s + (seconds - latency_s) / times;
  };
  for (MessageTime& message : library.message_times) {
    quicker(message.one_way_s);
    quicker(message.exchange_s);
  }
  return cluster;
}

}  // namespace orrery
