#include "evidence/words/machines.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "evidence/words/fields.h"
#include "evidence/words/network_words.h"
#include "evidence/words/pattern.h"
#include "evidence/words/rules.h"
#include "proto/evidence.pb.h"
#include "topologies/named_network.h"
#include "topologies/readers/catalog.h"

namespace orrery::evidence {
namespace {

// Assumed::widens. Half or twice the catalog's ports are usual for a device, and a fifth of a step is theirs.
constexpr double kUnknownNetworkWidens = 0.05;
constexpr double kUnknownPortsWiden = 0.1;
constexpr double kUnevenNodesWiden = 0.05;

void set_ports(int ports, double gigabits, Transport transport, Cluster* cluster) {
  NodeType& node = cluster->groups.front().node;
  node.nic.count = ports;
  node.nic.bandwidth_bytes_per_s = gigabits * kBytesPerGigabit;
  node.nic.direct = transport != Transport::tcp;
  cluster->fabric.transport = transport;
  deal_ports(&node);
}

// By a pattern of evidence/data/machines.textproto; false where none matches.
bool read_known_network(const std::string& words, Cluster* cluster, int* slices) {
  const int devices = cluster->groups.front().node.devices;
  for (const proto::PublishedNetwork& known : published_machines().network()) {
    auto taken = match_pattern(known.pattern(), words);
    if (!taken) continue;
    if (taken->contains("slices")) {
      *slices = std::max(1, std::atoi((*taken)["slices"].c_str()));
      return true;
    }
    const auto number = [&](const char* name) { return std::atof((*taken)[name].c_str()); };
    int ports = taken->contains("ports") ? std::atoi((*taken)["ports"].c_str()) : known.ports();
    double gigabits = known.gigabits() > 0 ? known.gigabits() : number("gigabits");
    if (taken->contains("node_gigabits")) {
      ports = devices;
      gigabits = number("node_gigabits") / devices;
    } else if (taken->contains("device_gigabits")) {
      ports = devices;
      gigabits = number("device_gigabits");
    }
    if (ports < 1 || ports > kMostPorts) return false;
    set_ports(ports, gigabits, transport_from_name(known.transport()), cluster);
    return true;
  }
  return false;
}

// Ports of a node and bytes a second of one, as the words of a column have them, of `all_devices` in all;
// false where they have none.
bool read_network(const std::string& words, int all_devices, Cluster* cluster, int* slices,
                  std::vector<Assumed>* assumed) {
  if (read_known_network(words, cluster, slices)) return true;
  const std::optional<PortWords> stated = ports_in_words(words);
  if (!stated) return false;
  const NodeType& node = cluster->groups.front().node;
  int ports = stated->ports;
  double gigabits = stated->gigabits;
  if (stated->of != PortWords::Of::port) {
    ports = node.devices;
    if (stated->of == PortWords::Of::node) gigabits /= ports;
  } else if (ports == 0) {
    const bool catalogs = gigabits * kBytesPerGigabit == node.nic.bandwidth_bytes_per_s;
    ports = catalogs ? node.nic.count : 1;
    if (all_devices > node.devices)
      assumed->push_back({fmt::format("{} of {:g} Gb/s a node",
                                      ports == 1 ? "one port" : fmt::format("{} ports", ports), gigabits),
                          "the row does not say how many ports a node has", kUnknownPortsWiden});
  }
  set_ports(ports, gigabits, stated->transport, cluster);
  return true;
}

Cluster cluster_of(const proto::PublishedDevice& known) {
  Cluster cluster = load_cluster(known.cluster());
  NodeType& node = cluster.groups.front().node;
  if (!known.device().empty()) cluster.profiles[node.profile] = catalog_device(known.device());
  if (known.intra_bytes_per_s() > 0) {
    node.intra.bandwidth_bytes_per_s = known.intra_bytes_per_s();
    node.intra.bridge_bandwidth_bytes_per_s = known.intra_bytes_per_s();
  }
  return cluster;
}

void fit_torus(int devices, NodeType* node) {
  if (node->intra.torus.empty()) return;
  Cluster alone;
  alone.groups.push_back({*node, 1});
  node->intra.torus = with_node_devices(std::move(alone), devices).groups.front().node.intra.torus;
}

// A node with more or fewer devices than the catalog's, and as large a share of its ports.
void resize_node(int devices, NodeType* node) {
  fit_torus(devices, node);
  node->nic.count = std::max(1, node->nic.count * devices / node->devices);
  node->devices = devices;
  node->intra.devices_per_bridge = std::min(node->intra.devices_per_bridge, devices);
  deal_ports(node);
  // Boards of four (Jean Zay, p3.8xlarge): every pair joined alike.
  if (node->intra.kind == IntraKind::nvlink_mesh) join_alike(node, 2);
}

const proto::PublishedDevice& device_or_nearest(const std::string& words, std::vector<Assumed>* assumed) {
  const proto::PublishedDevice* known = find_device(words);
  if (known == nullptr || known->cluster().empty()) known = &published_machines().unknown_device();
  if (known->widens() > 0)
    assumed->push_back({fmt::format("the device '{}' as {}", words,
                                    known->device().empty() ? known->cluster() : known->device()),
                        known->why(), known->widens()});
  return *known;
}

std::vector<std::string> parts_of(const std::string& text, std::string_view between) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(between, at), text.size());
    parts.push_back(text.substr(at, end - at));
    at = end + between.size();
  }
  return parts;
}

bool is_letter(char c) {
  return c >= 'a' && c <= 'z';
}

// Small letters and digits, single spaces for all else; without counts ("8x").
std::string plain(std::string_view words) {
  std::string text;
  for (const char c : lower(std::string(words))) {
    if (is_digit(c) || is_letter(c)) {
      text += c;
    } else if (!text.empty() && text.back() != ' ') {
      text += ' ';
    }
  }
  if (!text.empty() && text.back() == ' ') text.pop_back();
  const auto end =
      static_cast<std::size_t>(std::find_if_not(text.begin(), text.end(), is_digit) - text.begin());
  if (end > 0 && end + 1 < text.size() && text[end] == 'x')
    text.erase(0, text.find_first_not_of(' ', end + 1));
  return text;
}

// Not within a longer number or word.
bool stands_in(const std::string& text, const std::string& part) {
  const auto alike = [](char a, char b) {
    return (is_digit(a) && is_digit(b)) || (is_letter(a) && is_letter(b));
  };
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    const std::size_t end = at + part.size();
    if ((at == 0 || !alike(text[at - 1], part.front())) &&
        (end == text.size() || !alike(text[end], part.back())))
      return true;
  }
  return false;
}

// `text`: plain.
bool all_stand_in(const std::string& text, std::string_view name) {
  const std::vector<std::string> parts = parts_of(plain(name), " ");
  return std::all_of(parts.begin(), parts.end(),
                     [&](const std::string& part) { return stands_in(text, part); });
}

// So many nodes of each kind as its words say, else as evenly as can be, first kinds first. The fabric is the
// first kind's; of networks with a rate for each (a / b) every kind has its own.
Cluster heterogeneous_nodes(const std::vector<std::string>& kinds, const StepMachine& stated,
                            std::vector<Assumed>* assumed) {
  const auto count = static_cast<int>(kinds.size());
  if (stated.per_node <= 0 || stated.devices % stated.per_node != 0)
    throw Unreadable{fmt::format("{} devices of several kinds are no whole nodes", stated.devices)};
  const int nodes = stated.devices / stated.per_node;
  const std::vector<std::string> networks = parts_of(stated.network, " / ");
  Cluster cluster;
  int placed = 0;
  for (int kind = 0; kind < count; ++kind) {
    Cluster part = cluster_of(device_or_nearest(kinds[kind], assumed));
    NodeType node = part.groups.front().node;
    resize_node(stated.per_node, &node);
    part.groups.front().node = node;
    int slices = 1;
    std::vector<Assumed> again;  // what is assumed of one kind's network is said once
    read_network(networks[kind < static_cast<int>(networks.size()) ? kind : 0], stated.devices, &part,
                 &slices, kind == 0 ? assumed : &again);
    node = part.groups.front().node;
    const auto taken = match_pattern("{nodes} node", kinds[kind]);
    const int even = nodes / count + (kind < nodes % count ? 1 : 0);
    const int many = std::min(taken ? std::atoi(taken->at("nodes").c_str()) : even, nodes - placed);
    if (many <= 0) continue;
    placed += many;
    if (cluster.groups.empty()) {
      cluster = part;
      cluster.groups.clear();
      cluster.profiles.clear();
    }
    cluster.profiles.push_back(part.profiles[node.profile]);
    node.profile = static_cast<int>(cluster.profiles.size()) - 1;
    cluster.groups.push_back({node, many});
  }
  if (placed != nodes)
    throw Unreadable{fmt::format("the kinds of nodes add up to {} instead of {}", placed, nodes)};
  return cluster;
}

}  // namespace

bool means_device(std::string_view words, std::string_view name) {
  return all_stand_in(plain(words), name);
}

const proto::PublishedDevice* find_device(const std::string& words) {
  const std::string text = plain(words);
  for (const proto::PublishedDevice& device : published_machines().device())
    for (const std::string& word : device.word())
      if (all_stand_in(text, word)) return &device;
  return nullptr;
}

const proto::DeviceLink& find_link(const std::string& name) {
  for (const proto::DeviceLink& link : published_machines().link())
    if (link.name() == name) return link;
  throw InternalError("evidence/data/machines.textproto has no link '" + name + "'");
}

Cluster cluster_with_device(const std::string& words, const std::string& lacking) {
  const proto::PublishedDevice* known = find_device(words);
  if (known == nullptr || known->cluster().empty()) throw Unreadable{lacking + " '" + words + "'"};
  return cluster_of(*known);
}

void deal_ports(NodeType* node) {
  node->nic.of_device.clear();
  for (int d = 0; d < node->devices; ++d) node->nic.of_device.push_back(d * node->nic.count / node->devices);
}

void join_alike(NodeType* node, int links) {
  const auto devices = static_cast<std::size_t>(node->devices);
  node->intra.mesh_links.assign(devices * devices, links);
  for (std::size_t d = 0; d < devices; ++d) node->intra.mesh_links[d * (devices + 1)] = 0;
}

Cluster as_many(Cluster cluster, int devices, std::vector<Assumed>* assumed) {
  cluster.groups.resize(1);
  cluster.groups.front().count = 1;
  NodeType& node = cluster.groups.front().node;
  if (devices < node.devices || devices % node.devices == 0) return with_devices(std::move(cluster), devices);
  // The fewest nodes that the devices fill evenly, with a port a device.
  int nodes = (devices + node.devices - 1) / node.devices;
  while (devices % nodes != 0) ++nodes;
  assumed->push_back({fmt::format("{} nodes of {} devices", nodes, devices / nodes),
                      fmt::format("{} devices are no whole number of nodes of {}", devices, node.devices),
                      kUnevenNodesWiden});
  resize_node(devices / nodes, &node);
  return with_nodes(std::move(cluster), nodes);
}

Cluster step_machine(const StepMachine& stated, std::vector<Assumed>* assumed) {
  if (stated.device.empty()) throw Unreadable{"the device is not named"};
  if (const std::vector<std::string> kinds = parts_of(stated.device, " + "); kinds.size() > 1)
    return heterogeneous_nodes(kinds, stated, assumed);
  const proto::PublishedDevice& known = device_or_nearest(stated.device, assumed);
  Cluster cluster = cluster_of(known);
  NodeType& node = cluster.groups.front().node;
  const bool rack = !known.link().empty() && find_link(known.link()).domain() > 0;
  if (!rack && known.domain() == 0 && stated.per_node > 0 && stated.per_node < node.devices &&
      stated.devices > stated.per_node)
    resize_node(stated.per_node, &node);
  int slices = known.domain() > 0 ? (stated.devices + known.domain() - 1) / known.domain() : 1;
  if (!read_network(stated.network, stated.devices, &cluster, &slices, assumed) &&
      stated.devices > node.devices)
    assumed->push_back({fmt::format("the network of {}", cluster.name),
                        stated.network.empty() ? "the row names none" : "its words name no rate",
                        kUnknownNetworkWidens});
  if (known.domain() > 0 && stated.devices % slices == 0) resize_node(stated.devices / slices, &node);
  // A rack of which each job takes its part.
  const int racks = (stated.devices + node.devices - 1) / node.devices;
  if (rack && racks > 1 && stated.devices % node.devices != 0 && stated.devices % racks == 0) {
    fit_torus(stated.devices / racks, &node);
    node.devices = stated.devices / racks;
    node.nic.count = node.devices;
    deal_ports(&node);
    return with_nodes(std::move(cluster), racks);
  }
  return as_many(std::move(cluster), stated.devices, assumed);
}

Cluster throughput_machine(const std::string& device, int devices, int per_node,
                           const proto::Reading& reading) {
  Cluster cluster = cluster_with_device(device, "no profile of the accelerator");
  NodeType& node = cluster.groups.front().node;
  per_node = std::min(per_node, devices);
  if (const proto::PublishedDevice& known = *find_device(device); known.domain() > 0) {
    per_node = std::min(devices, known.domain());
    resize_node(per_node, &node);
  }
  if (node.intra.kind == IntraKind::pcie) {
    node.intra.devices_per_bridge = std::max(1, per_node / 2);
    // The catalog's node has one device, and says nothing of bridges: as wide as a device.
    if (node.intra.bridge_bandwidth_bytes_per_s == 0)
      node.intra.bridge_bandwidth_bytes_per_s = node.intra.bandwidth_bytes_per_s;
  }
  if (per_node != node.devices) {
    fit_torus(per_node, &node);
    node.devices = per_node;
    if (node.intra.kind == IntraKind::nvlink_mesh && per_node > 8) {
      // No mesh has so many: a switch with all links of a device (DGX-2: six of 25 GB/s).
      node.intra.kind = IntraKind::nvswitch;
      node.intra.bandwidth_bytes_per_s = 150e9;
      node.intra.mesh_links.clear();
    } else if (node.intra.kind == IntraKind::nvlink_mesh) {
      join_alike(&node, 2);
    }
    node.nic.count = std::max(1, std::min(node.nic.count, per_node));
  }
  if (reading.ports() > 0) {
    const double port_bytes_per_s = reading.port_gigabits() * kBytesPerGigabit;
    const double pcie_bytes_per_s = std::max(node.nic.pcie_bandwidth_bytes_per_s, port_bytes_per_s);
    const int ports = std::min(reading.ports(), per_node);
    set_ports(ports, reading.port_gigabits() * reading.ports() / ports,
              reading.roce() ? Transport::roce : Transport::infiniband, &cluster);
    node.nic.pcie_bandwidth_bytes_per_s = pcie_bytes_per_s;
  }
  deal_ports(&node);
  cluster.groups.front().count = 1;
  return per_node == devices ? with_devices(std::move(cluster), devices)
                             : with_nodes(std::move(cluster), (devices + per_node - 1) / per_node);
}

}  // namespace orrery::evidence
