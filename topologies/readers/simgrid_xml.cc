#include "topologies/readers/simgrid_xml.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "base/error.h"
#include "topologies/communication_defaults.h"
#include "topologies/readers/catalog.h"
#include "topologies/readers/simgrid_units.h"
#include "topologies/readers/xml.h"

namespace orrery {
namespace {

constexpr std::size_t kMaxStarHosts = 2048;  // routes go with their square

// Elements that say how to run or draw, not what the machine is.
const std::set<std::string_view> kIgnored = {"config", "prop", "random", "include"};

class Reader {
 public:
  explicit Reader(std::string_view file) : file_(file) {}

  Cluster read(const XmlElement& root) {
    if (root.name != "platform")
      fail(root, fmt::format("<{}> is no SimGrid platform", root.name), "expected <platform>");
    const auto version = simgrid_number(root.attribute("version"), SimgridUnit::seconds);
    if (!version || *version < 4 || *version >= 5)
      fail(root, fmt::format("platform version '{}'", root.attribute("version")),
           "expected version 4 or 4.1");
    const XmlElement& zone = innermost(root);
    return zone.name == "cluster" ? from_cluster(zone) : from_star(zone);
  }

 private:
  [[noreturn]] void fail(const XmlElement& at, std::string_view what, std::string_view expected) const {
    throw UserError(file_, at.line, what, expected);
  }

  static bool is_zone(const XmlElement& element) { return element.name == "zone" || element.name == "AS"; }

  // Down through zones that hold one zone or cluster and nothing else.
  const XmlElement& innermost(const XmlElement& zone) const {
    const XmlElement* inner = nullptr;
    bool hosts = false;
    for (const XmlElement& child : zone.children) {
      if (kIgnored.count(child.name) > 0) continue;
      if (!is_zone(child) && child.name != "cluster") {
        hosts = true;
        if (inner != nullptr) fail(child, fmt::format("<{}> beside a zone", child.name), expected_shape());
      } else if (inner != nullptr || hosts) {
        fail(child, fmt::format("<{}> beside other elements", child.name), expected_shape());
      } else {
        inner = &child;
      }
    }
    if (inner == nullptr) return zone;
    return inner->name == "cluster" ? *inner : innermost(*inner);
  }

  static std::string expected_shape() {
    return "expected one <cluster>, or the hosts, links and routes of one star";
  }

  double number(const XmlElement& at, std::string_view attribute, SimgridUnit unit) const {
    const std::string_view text = at.attribute(attribute);
    const auto value = simgrid_number(text, unit);
    if (!value)
      fail(at, fmt::format("{}=\"{}\" of <{}>", attribute, text, at.name),
           unit == SimgridUnit::seconds       ? "expected a time such as 50us"
           : unit == SimgridUnit::bytes_per_s ? "expected a bandwidth such as 125MBps"
                                              : "expected a speed such as 1Gf");
    return *value;
  }

  double positive(const XmlElement& at, std::string_view attribute, SimgridUnit unit) const {
    const double value = number(at, attribute, unit);
    if (!(value > 0))
      fail(at, fmt::format("{} of <{}> is 0", attribute, at.name), "expected a positive number");
    return value;
  }

  int count(const XmlElement& at, std::string_view text, std::string_view what) const {
    int value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > kMaxNodes)
      fail(at, fmt::format("{} '{}'", what, text), fmt::format("expected a count from 1 to {}", kMaxNodes));
    return value;
  }

  std::vector<int> counts(const XmlElement& at, std::string_view text, char separator,
                          std::string_view what) const {
    std::vector<int> values;
    for (const std::string_view part : split(text, separator)) values.push_back(count(at, part, what));
    return values;
  }

  static std::vector<std::string_view> split(std::string_view text, char separator) {
    std::vector<std::string_view> parts;
    for (std::size_t at = 0; at <= text.size();) {
      const std::size_t end = std::min(text.find(separator, at), text.size());
      parts.push_back(text.substr(at, end - at));
      at = end + 1;
    }
    return parts;
  }

  // "0-99,102": how many hosts that is.
  int radical(const XmlElement& at) const {
    const auto wrong = [&] {
      fail(at, fmt::format("radical=\"{}\"", at.attribute("radical")), "expected ranges such as 0-99,102");
    };
    std::int64_t hosts = 0;
    for (const std::string_view range : split(at.attribute("radical"), ',')) {
      std::vector<std::int64_t> ends;
      for (const std::string_view text : split(range, '-')) {
        std::uint32_t value = 0;
        const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        if (error != std::errc() || stop != text.data() + text.size()) wrong();
        ends.push_back(value);
      }
      if (ends.size() > 2 || ends.front() > ends.back()) wrong();
      hosts += ends.back() - ends.front() + 1;
      if (hosts > kMaxNodes)
        fail(at, fmt::format("{} hosts are too many", hosts), fmt::format("expected at most {}", kMaxNodes));
    }
    return static_cast<int>(hosts);
  }

  // The host's speed is the first of its performance states, of one core.
  double speed(const XmlElement& at) const {
    const std::string_view text = at.attribute("speed");
    const std::string_view first = text.substr(0, text.find(','));
    const auto value = simgrid_number(first, SimgridUnit::flops_per_s);
    if (!value || !(*value > 0)) fail(at, fmt::format("speed=\"{}\"", text), "expected a speed such as 1Gf");
    const std::string_view cores = at.attribute("core");
    return *value * (cores.empty() ? 1 : count(at, cores, "core"));
  }

  Cluster empty_cluster(const XmlElement& zone) const {
    Cluster cluster;
    cluster.name = zone.attribute("id").empty() ? "simgrid" : std::string(zone.attribute("id"));
    cluster.description = fmt::format("SimGrid platform {}", file_);
    cluster.source = fmt::format("{}, line {}", file_, zone.line);
    cluster.fabric.transport = Transport::tcp;
    cluster.communication = default_communication(CommunicationLibrary::mpi, Transport::tcp);
    return cluster;
  }

  // Index of the profile of hosts of this speed.
  int profile(Cluster& cluster, double flops_per_s) const {
    const std::string name = fmt::format("simgrid-host-{:g}", flops_per_s);
    for (std::size_t i = 0; i < cluster.profiles.size(); ++i) {
      if (cluster.profiles[i].name == name) return static_cast<int>(i);
    }
    DeviceProfile host = catalog_device("generic-cpu");
    host.name = name;
    host.description = "a host of a SimGrid platform";
    host.source = fmt::format("speed from {}; all else generic-cpu", file_);
    host.peak_flops_per_s[static_cast<std::size_t>(DType::fp32)] = flops_per_s;
    cluster.profiles.push_back(std::move(host));
    return static_cast<int>(cluster.profiles.size()) - 1;
  }

  static NodeType host_node(int profile, double bandwidth_bytes_per_s, double latency_s) {
    NodeType node;
    node.name = "host";
    node.profile = profile;
    node.devices = 1;
    node.intra.kind = IntraKind::shared_memory;
    node.nic.count = 1;
    node.nic.bandwidth_bytes_per_s = bandwidth_bytes_per_s;
    node.nic.latency_s = latency_s;
    node.nic.of_device = {0};
    return node;
  }

  Cluster from_cluster(const XmlElement& at) const {
    Cluster cluster = empty_cluster(at);
    const int hosts = radical(at);
    const double bandwidth = positive(at, "bw", SimgridUnit::bytes_per_s);
    const double latency = number(at, "lat", SimgridUnit::seconds);
    cluster.groups.push_back({host_node(profile(cluster, speed(at)), bandwidth, latency), hosts});
    const std::string_view topology = at.attribute("topology");
    if (topology.empty() || topology == "FLAT") {
      flat(at, cluster.fabric);
    } else if (topology == "FAT_TREE") {
      fat_tree(at, latency, cluster);
    } else if (topology == "TORUS") {
      torus(at, bandwidth, latency, cluster);
    } else if (topology == "DRAGONFLY") {
      dragonfly(at, bandwidth, latency, cluster);
    } else {
      fail(at, fmt::format("topology '{}'", topology), "expected FLAT, FAT_TREE, TORUS or DRAGONFLY");
    }
    return cluster;
  }

  void flat(const XmlElement& at, Fabric& fabric) const {
    fabric.kind = FabricKind::star;
    if (at.attribute("bb_bw").empty()) return;
    fabric.switch_latency_s = at.attribute("bb_lat").empty() ? 0 : number(at, "bb_lat", SimgridUnit::seconds);
    const double backbone = positive(at, "bb_bw", SimgridUnit::bytes_per_s);
    if (at.attribute("bb_sharing_policy") != "FATPIPE") fabric.link_bandwidth_bytes_per_s = backbone;
  }

  // "levels;children of a switch by level;parents by level;parallel links by level".
  void fat_tree(const XmlElement& at, double latency, Cluster& cluster) const {
    const std::string_view text = at.attribute("topo_parameters");
    const auto parts = split(text, ';');
    const auto wrong = [&] {
      fail(at, fmt::format("topo_parameters=\"{}\"", text),
           "expected levels;down;up;parallel such as 2;4,4;1,2;1,2");
    };
    if (parts.size() != 4) wrong();
    const int levels = count(at, parts[0], "levels");
    const std::vector<int> down = counts(at, parts[1], ',', "children");
    const std::vector<int> up = counts(at, parts[2], ',', "parents");
    const std::vector<int> parallel = counts(at, parts[3], ',', "parallel links");
    const auto size = static_cast<std::size_t>(levels);
    if (down.size() != size || up.size() != size || parallel.size() != size) wrong();
    if (levels > 2) fail(at, fmt::format("a fat tree of {} levels", levels), "expected one or two");
    const double leaves = static_cast<double>(down[0]) * (levels == 2 ? down[1] : 1);
    NodeGroup& group = cluster.groups[0];
    if (leaves != group.count)
      fail(at, fmt::format("the fat tree has {} leaves for {} hosts", leaves, group.count),
           "expected as many: children of all levels multiplied");
    const double ports = static_cast<double>(up[0]) * parallel[0];
    group.node.nic.bandwidth_bytes_per_s *= ports;  // a host's links together
    Fabric& fabric = cluster.fabric;
    if (levels == 1) return star_latencies(latency, group.node, fabric);
    fabric.kind = FabricKind::fat_tree;
    fabric.nodes_per_leaf = down[0];
    fabric.oversubscription = down[0] * ports / (static_cast<double>(up[1]) * parallel[1] * up[0]);
    // Two links between hosts of a leaf, four across: half a link at each port and one a switch crossed.
    star_latencies(latency, group.node, fabric);
  }

  static void star_latencies(double latency, NodeType& node, Fabric& fabric) {
    node.nic.latency_s = latency / 2;
    fabric.switch_latency_s = latency;
  }

  void torus(const XmlElement& at, double bandwidth, double latency, Cluster& cluster) const {
    std::vector<int> sizes = counts(at, at.attribute("topo_parameters"), ',', "torus dimension");
    if (sizes.size() > 8)
      fail(at, fmt::format("a torus of {} dimensions", sizes.size()), "expected at most 8");
    double product = 1;
    for (const int size : sizes) product *= size;
    NodeGroup& group = cluster.groups[0];
    if (product != group.count)
      fail(at, fmt::format("the torus has {} places for {} hosts", product, group.count), "expected as many");
    std::reverse(sizes.begin(), sizes.end());  // SimGrid's first dimension runs fastest, ours last
    cluster.fabric.kind = FabricKind::torus;
    cluster.fabric.torus = std::move(sizes);
    cluster.fabric.link_bandwidth_bytes_per_s = bandwidth;
    cluster.fabric.switch_latency_s = latency;  // one link a hop
    group.node.nic.latency_s = 0;
    // A host is a router of the torus: nothing is narrower than its links together.
    group.node.nic.bandwidth_bytes_per_s = 2 * bandwidth * static_cast<double>(cluster.fabric.torus.size());
  }

  // "groups,links;chassis,links;blades,links;nodes of a blade", a blade being a router.
  void dragonfly(const XmlElement& at, double bandwidth, double latency, Cluster& cluster) const {
    const std::string_view text = at.attribute("topo_parameters");
    const auto parts = split(text, ';');
    std::vector<std::vector<int>> figures;
    for (const std::string_view part : parts) figures.push_back(counts(at, part, ',', "dragonfly parameter"));
    if (figures.size() != 4 || figures[0].size() != 2 || figures[1].size() != 2 || figures[2].size() != 2 ||
        figures[3].size() != 1)
      fail(at, fmt::format("topo_parameters=\"{}\"", text),
           "expected groups,links;chassis,links;blades,links;nodes such as 3,4;1,1;5,1;2");
    const auto [groups, chassis, blades] = std::tuple(figures[0], figures[1], figures[2]);
    if (chassis[0] != 1 && blades[0] != 1)
      fail(at, fmt::format("a dragonfly of {} chassis of {} blades a group", chassis[0], blades[0]),
           "expected one chassis a group, or chassis of one blade: routers joined all to all");
    Fabric& fabric = cluster.fabric;
    fabric.kind = FabricKind::dragonfly;
    fabric.groups = groups[0];
    fabric.routers = std::max(chassis[0], blades[0]);
    fabric.nodes_per_router = figures[3][0];
    fabric.link_bandwidth_bytes_per_s = bandwidth * (chassis[0] > 1 ? chassis[1] : blades[1]);
    fabric.global_bandwidth_bytes_per_s = bandwidth * groups[1];
    const double places = static_cast<double>(fabric.groups) * fabric.routers * fabric.nodes_per_router;
    NodeGroup& group = cluster.groups[0];
    if (places != group.count)
      fail(at, fmt::format("the dragonfly has {} places for {} hosts", places, group.count),
           "expected as many");
    star_latencies(latency, group.node, fabric);
  }

  struct StarLink {
    double bandwidth_bytes_per_s = 0;
    double latency_s = 0;
    bool fatpipe = false;
  };
  struct StarHost {
    double speed = 0;
    std::string up;  // its own link, as a source and as a destination
    std::string down;
  };
  struct Star {
    std::vector<std::string> order;
    std::map<std::string, StarHost, std::less<>> hosts;
    std::map<std::string, StarLink, std::less<>> links;
    std::set<std::pair<std::string, std::string>> routes;
    std::string backbone;
    bool first_route = true;
    bool one_link = false;  // two hosts on a single link
  };

  Cluster from_star(const XmlElement& zone) const {
    Star star;
    for (const XmlElement& child : zone.children) {
      if (child.name == "host") {
        add_host(child, star);
      } else if (child.name == "link") {
        add_link(child, star);
      } else if (child.name != "route" && kIgnored.count(child.name) == 0) {
        fail(child, fmt::format("<{}> is nothing that a cluster expresses", child.name), expected_shape());
      }
    }
    if (star.order.empty()) fail(zone, "the platform has no hosts", expected_shape());
    for (const XmlElement& child : zone.children) {
      if (child.name == "route") add_route(child, star);
    }
    const std::size_t hosts = star.order.size();
    if (star.routes.size() != hosts * (hosts - 1)) {
      for (const std::string& a : star.order) {
        for (const std::string& b : star.order) {
          if (a != b && star.routes.count({a, b}) == 0)
            fail(zone, fmt::format("no route from '{}' to '{}'", a, b),
                 "expected a route between every two hosts");
        }
      }
    }
    return star_cluster(zone, star);
  }

  void add_host(const XmlElement& at, Star& star) const {
    const std::string id(at.attribute("id"));
    if (id.empty() || !star.hosts.emplace(id, StarHost{speed(at), "", ""}).second)
      fail(at, fmt::format("host id '{}' is missing or given twice", id), "expected a name of its own");
    star.order.push_back(id);
    if (star.order.size() > kMaxStarHosts)
      fail(at, fmt::format("more than {} hosts by route", kMaxStarHosts), "expected a <cluster>");
  }

  void add_link(const XmlElement& at, Star& star) const {
    const std::string id(at.attribute("id"));
    StarLink link;
    link.bandwidth_bytes_per_s = positive(at, "bandwidth", SimgridUnit::bytes_per_s);
    link.latency_s = at.attribute("latency").empty() ? 0 : number(at, "latency", SimgridUnit::seconds);
    link.fatpipe = at.attribute("sharing_policy") == "FATPIPE";
    if (id.empty() || !star.links.emplace(id, link).second)
      fail(at, fmt::format("link id '{}' is missing or given twice", id), "expected a name of its own");
  }

  void add_route(const XmlElement& at, Star& star) const {
    const std::string from(at.attribute("src"));
    const std::string to(at.attribute("dst"));
    for (const std::string& end : {from, to}) {
      if (star.hosts.count(end) == 0)
        fail(at, fmt::format("a route of an unknown host '{}'", end), "expected a <host>");
    }
    if (from == to) return;  // a loopback: costs nothing between nodes
    std::vector<std::string> links;
    for (const XmlElement& step : at.children) {
      if (step.name != "link_ctn")
        fail(step, fmt::format("<{}> in a route", step.name), "expected <link_ctn>");
      links.emplace_back(step.attribute("id"));
      if (star.links.count(links.back()) == 0)
        fail(step, fmt::format("a route over an unknown link '{}'", links.back()), "expected a <link>");
    }
    add_way(at, from, to, links, star);
    const std::string_view symmetrical = at.attribute("symmetrical");
    if (symmetrical != "NO" && symmetrical != "no") {
      std::reverse(links.begin(), links.end());
      add_way(at, to, from, links, star);
    }
  }

  void add_way(const XmlElement& at, const std::string& from, const std::string& to,
               const std::vector<std::string>& links, Star& star) const {
    if (!star.routes.insert({from, to}).second)
      fail(at, fmt::format("a second route from '{}' to '{}'", from, to), "expected one");
    const bool single = links.size() == 1 && star.order.size() == 2;
    if (!single && links.size() != 2 && links.size() != 3)
      fail(at, fmt::format("a route of {} links from '{}' to '{}'", links.size(), from, to),
           "expected a link of each host's own, and at most one backbone between them");
    const std::string backbone = links.size() == 3 ? links[1] : "";
    if (!star.first_route && (backbone != star.backbone || single != star.one_link))
      fail(at, fmt::format("the route from '{}' to '{}' does not cross what the others cross", from, to),
           "expected one backbone in all routes, or in none");
    star.first_route = false;
    star.backbone = backbone;
    star.one_link = single;
    own_link(at, star.hosts.find(from)->second.up, links.front(), from);
    own_link(at, star.hosts.find(to)->second.down, links.back(), to);
  }

  void own_link(const XmlElement& at, std::string& own, const std::string& link,
                const std::string& host) const {
    if (own.empty()) own = link;
    if (own != link)
      fail(at, fmt::format("host '{}' leaves over '{}' and over '{}'", host, own, link),
           "expected one link of its own in all of its routes: a star");
  }

  Cluster star_cluster(const XmlElement& zone, const Star& star) const {
    std::map<std::string, std::string> owner;
    Cluster cluster = empty_cluster(zone);
    for (const std::string& id : star.order) {
      const StarHost& host = star.hosts.find(id)->second;
      StarLink up{.bandwidth_bytes_per_s = 1};
      StarLink down = up;
      if (star.order.size() > 1) {
        up = star.links.find(host.up)->second;
        down = star.links.find(host.down)->second;
      }
      if (up.bandwidth_bytes_per_s != down.bandwidth_bytes_per_s || up.latency_s != down.latency_s)
        fail(zone, fmt::format("host '{}' sends and receives at different rates", id),
             "expected the same both ways");
      for (const std::string& link : {host.up, host.down}) {
        const auto [at, fresh] = owner.emplace(link, id);
        if (!link.empty() && !star.one_link && (at->second != id || link == star.backbone))
          fail(zone, fmt::format("link '{}' is not host '{}''s own", link, id), "expected a star");
      }
      NodeType node = host_node(profile(cluster, host.speed), up.bandwidth_bytes_per_s,
                                star.one_link ? up.latency_s / 2 : up.latency_s);
      if (star.order.size() == 1) node.nic = {};
      if (!cluster.groups.empty() && same(cluster.groups.back().node, node)) {
        ++cluster.groups.back().count;
        cluster.groups.back().node.hosts.push_back(id);
      } else {
        node.hosts = {id};
        cluster.groups.push_back({std::move(node), 1});
      }
    }
    if (star.order.size() == 1) cluster.fabric.transport = Transport::host;
    if (!star.backbone.empty()) {
      const StarLink& backbone = star.links.find(star.backbone)->second;
      cluster.fabric.switch_latency_s = backbone.latency_s;
      if (!backbone.fatpipe) cluster.fabric.link_bandwidth_bytes_per_s = backbone.bandwidth_bytes_per_s;
    }
    return cluster;
  }

  static bool same(const NodeType& a, const NodeType& b) {
    return a.profile == b.profile && a.nic.bandwidth_bytes_per_s == b.nic.bandwidth_bytes_per_s &&
           a.nic.latency_s == b.nic.latency_s;
  }

  std::string_view file_;
};

}  // namespace

Cluster cluster_from_simgrid(std::string_view xml, std::string_view file) {
  return rechecked(Reader(file).read(parse_xml(xml, file)), file);
}

}  // namespace orrery
