#include "sim/zones/zone_platform.h"

#include <fmt/format.h>

// In this order: SimGrid's C headers need what s4u.hpp declares.
// clang-format off
#include <simgrid/s4u.hpp>
#include <xbt/log.h>
// clang-format on

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "base/error.h"
#include "sim/network/platform.h"
#include "topologies/network.h"

namespace orrery::sim {
namespace sg4 = simgrid::s4u;

namespace {

using simgrid::kernel::routing::NetPoint;
using Links = std::vector<sg4::LinkInRoute>;
using Coordinates = std::vector<unsigned long>;

constexpr double kWide = 1e18;  // bytes/s: a link that only delays
constexpr int kMaxParallelLinks = 1024;

bool is_local(LinkKind kind) {
  switch (kind) {
    case LinkKind::device_port:
    case LinkKind::mesh:
    case LinkKind::pcie:
    case LinkKind::bridge:
    case LinkKind::nic:
    case LinkKind::memory:
      return true;
    default:
      return false;
  }
}

std::string host_name(const Cluster& cluster, int device) {
  const DevicePlace at = cluster.place(device);
  const bool gpu = cluster.profile_of(device).kind == DeviceKind::gpu;
  return fmt::format("node{}.{}{}", at.node, gpu ? "gpu" : "rank", at.local);
}

class Builder {
 public:
  explicit Builder(const Cluster& cluster) : cluster_(cluster), network_(cluster) {}

  void build() {
    if (cluster_.nodes() == 1) {
      sg4::NetZone* root = sg4::create_star_zone("cluster");
      node_zone(root, 0);
      root->seal();
      return;
    }
    switch (cluster_.fabric.kind) {
      case FabricKind::star:
        return star();
      case FabricKind::fat_tree:
        return fat_tree();
      case FabricKind::rail_fat_tree:
        return rails();
      case FabricKind::torus:
        return torus();
      case FabricKind::dragonfly:
        return dragonfly();
    }
  }

  std::vector<sg4::Host*> hosts;  // by device

 private:
  [[noreturn]] static void inexpressible(const std::string& what, const std::string& expected) {
    throw UserError("SimGrid's zones cannot express " + what, expected);
  }

  // The link of `id`, in both directions where it has two, made in `zone` when first met.
  sg4::Link* link_of(sg4::NetZone* zone, LinkId id, double less_latency_s = 0) {
    sg4::Link*& made = links_[id];
    if (made == nullptr) {
      const Link link = network_.link(id);
      if (link.bandwidth_bytes_per_s <= 0) throw InternalError("a route over a dead link");
      made = zone->create_link(network_.name_of(id), link.bandwidth_bytes_per_s)
                 ->set_latency(std::max(0.0, link.latency_s - less_latency_s))
                 ->seal();
    }
    return made;
  }

  Links links_of(sg4::NetZone* zone, const std::vector<Link>& route) {
    Links links;
    for (const Link& link : route)
      links.emplace_back(link_of(zone, link.id, link.kind == LinkKind::nic ? port_rebate_s_ : 0));
    return links;
  }

  sg4::Host* make_host(sg4::NetZone* zone, int device) {
    const DeviceProfile& profile = cluster_.profile_of(device);
    const double peak = *std::max_element(profile.peak_flops_per_s.begin(), profile.peak_flops_per_s.end());
    hosts.resize(static_cast<std::size_t>(cluster_.devices()), nullptr);
    sg4::Host* host =
        zone->create_host(host_name(cluster_, device), std::max(1.0, peak * cluster_.device_speed(device)));
    host->seal();
    return hosts[static_cast<std::size_t>(device)] = host;
  }

  // A device's way out of its node (`up`) or into it: what a route to another node crosses inside this one.
  std::vector<Link> way(int device, int other, bool up) const {
    const Route route = up ? network_.route(device, other) : network_.route(other, device);
    std::vector<Link> links;
    if (up) {
      for (const Link& link : route.links) {
        if (!is_local(link.kind)) break;
        links.push_back(link);
        if (link.kind == LinkKind::nic) break;
      }
    } else {
      for (auto at = route.links.rbegin(); at != route.links.rend(); ++at) {
        if (!is_local(at->kind)) break;
        links.insert(links.begin(), *at);
        if (at->kind == LinkKind::nic) break;
      }
    }
    return links;
  }

  std::pair<NetPoint*, NetPoint*> node_zone(const sg4::NetZone* parent, int node) {
    const NodeType& type = cluster_.node_type(node);
    const int first = cluster_.first_device(node);
    const std::string name = fmt::format("node{}", node);
    const bool hub = type.intra.kind == IntraKind::nvswitch || type.intra.kind == IntraKind::shared_memory;
    sg4::NetZone* zone = hub ? sg4::create_star_zone(name) : sg4::create_full_zone(name);
    zone->set_parent(parent);
    for (int d = 0; d < type.devices; ++d) make_host(zone, first + d);
    NetPoint* gateway = zone->create_router(name + ".gateway");
    const auto point = [&](int d) {
      return hosts[static_cast<std::size_t>(first) + static_cast<std::size_t>(d)]->get_netpoint();
    };
    if (hub) {
      // The first link of a route is the source's, the last the destination's; what lies between (a host's
      // memory) is shared by all and stands on both sides: SimGrid crosses a star's link once.
      for (int d = 0; d < type.devices && type.devices > 1; ++d) {
        const int other = d == 0 ? 1 : 0;
        const auto out = network_.route(first + d, first + other).links;
        const auto in = network_.route(first + other, first + d).links;
        zone->add_route(point(d), nullptr, nullptr, nullptr, links_of(zone, {out.begin(), out.end() - 1}),
                        false);
        zone->add_route(nullptr, point(d), nullptr, nullptr, links_of(zone, {in.begin() + 1, in.end()}),
                        false);
      }
    } else {
      for (int a = 0; a < type.devices; ++a)
        for (int b = 0; b < type.devices; ++b)
          if (a != b)
            zone->add_route(point(a), point(b), nullptr, nullptr,
                            links_of(zone, network_.route(first + a, first + b).links), false);
    }
    if (cluster_.nodes() > 1) {
      const int other = cluster_.first_device(node == 0 ? 1 : 0);
      for (int d = 0; d < type.devices; ++d) {
        const Links up = links_of(zone, way(first + d, other, true));
        const Links down = links_of(zone, way(first + d, other, false));
        if (hub) {
          zone->add_bypass_route(point(d), gateway, nullptr, nullptr, up);
          zone->add_bypass_route(gateway, point(d), nullptr, nullptr, down);
        } else {
          zone->add_route(point(d), gateway, nullptr, nullptr, up, false);
          zone->add_route(gateway, point(d), nullptr, nullptr, down, false);
        }
      }
    }
    zone->seal();
    return {zone->get_netpoint(), gateway};
  }

  void star() {
    const Fabric& fabric = cluster_.fabric;
    sg4::NetZone* root = sg4::create_star_zone("cluster");
    sg4::Link* crossbar = root->create_link(
        "switch", fabric.link_bandwidth_bytes_per_s > 0 ? fabric.link_bandwidth_bytes_per_s : kWide);
    crossbar->set_latency(fabric.switch_latency_s);
    if (fabric.link_bandwidth_bytes_per_s <= 0)
      crossbar->set_sharing_policy(sg4::Link::SharingPolicy::FATPIPE);
    crossbar->seal();
    for (int node = 0; node < cluster_.nodes(); ++node) {
      const auto [zone, gateway] = node_zone(root, node);
      root->add_route(zone, nullptr, gateway, nullptr, Links{sg4::LinkInRoute(crossbar)}, true);
    }
    root->seal();
  }

  double widest_injection() const {
    double widest = 0;
    for (const NodeGroup& group : cluster_.groups)
      widest = std::max(widest, group.node.nic.count * group.node.nic.bandwidth_bytes_per_s);
    return widest;
  }

  void fat_tree() {
    const Fabric& fabric = cluster_.fabric;
    const int nodes = cluster_.nodes();
    const int leaves = (nodes + fabric.nodes_per_leaf - 1) / fabric.nodes_per_leaf;
    double uplink = widest_injection();
    bool first = true;
    for (const LinkId id : network_.all_links()) {
      const Link link = network_.link(id);
      if (link.kind != LinkKind::leaf_uplink) continue;
      if (!first && std::abs(link.bandwidth_bytes_per_s - uplink) > 1e-9 * uplink)
        inexpressible("a fat tree whose leaves have different uplinks", "expected nodes of one kind");
      uplink = link.bandwidth_bytes_per_s;
      first = false;
    }
    // One rate for both levels: a node's own must not be what binds.
    if (uplink < widest_injection() * (1 - 1e-9))
      inexpressible(fmt::format("a leaf of {} nodes oversubscribed {}:1, less than one node sends",
                                fabric.nodes_per_leaf, fabric.oversubscription),
                    "expected nodes_per_leaf of at least the oversubscription");
    port_rebate_s_ = fabric.switch_latency_s / 2;
    const auto below = static_cast<unsigned>(std::min(fabric.nodes_per_leaf, nodes));
    const sg4::ClusterCallbacks callbacks([&](sg4::NetZone* zone, const Coordinates&, unsigned long id) {
      return node_or_hole(zone, static_cast<int>(id));
    });
    sg4::create_fatTree_zone("cluster", nullptr, {2, {below, static_cast<unsigned>(leaves)}, {1, 1}, {1, 1}},
                             callbacks, uplink, fabric.switch_latency_s,
                             sg4::Link::SharingPolicy::SPLITDUPLEX)
        ->seal();
  }

  // A last leaf that is not full has places without a node.
  std::pair<NetPoint*, NetPoint*> node_or_hole(sg4::NetZone* zone, int node) {
    if (node < cluster_.nodes()) return node_zone(zone, node);
    return {zone->create_router(fmt::format("empty{}", node)), nullptr};
  }

  void torus() {
    const Fabric& fabric = cluster_.fabric;
    Coordinates sizes;
    for (const int size : fabric.torus)
      if (size > 1) sizes.push_back(static_cast<unsigned long>(size));
    for (const NodeGroup& group : cluster_.groups)
      if (fabric.link_bandwidth_bytes_per_s <= 0 &&
          group.node.nic.count * group.node.nic.bandwidth_bytes_per_s != widest_injection())
        inexpressible("a torus of links of different rates", "expected link_bandwidth or nodes of one kind");
    const double rate =
        fabric.link_bandwidth_bytes_per_s > 0 ? fabric.link_bandwidth_bytes_per_s : widest_injection();
    // SimGrid numbers the first dimension fastest and routes it first; we number the last fastest and route
    // the first first. So the dimensions stay and the numbers change.
    const sg4::ClusterCallbacks callbacks([&](sg4::NetZone* zone, const Coordinates&, unsigned long id) {
      unsigned long node = 0;
      unsigned long rest = id;
      for (const unsigned long size : sizes) {
        node = node * size + rest % size;
        rest /= size;
      }
      return node_zone(zone, static_cast<int>(node));
    });
    sg4::create_torus_zone("cluster", nullptr, sizes, callbacks, rate, fabric.switch_latency_s,
                           sg4::Link::SharingPolicy::SPLITDUPLEX)
        ->seal();
  }

  void dragonfly() {
    const Fabric& fabric = cluster_.fabric;
    if (fabric.groups > fabric.routers)  // SimGrid 3.32 would crash while routing
      inexpressible(fmt::format("a dragonfly of {} groups of {} routers", fabric.groups, fabric.routers),
                    "expected at most as many groups as routers in one");
    const double local =
        fabric.link_bandwidth_bytes_per_s > 0 ? fabric.link_bandwidth_bytes_per_s : widest_injection();
    const double global = fabric.groups > 1 ? fabric.global_bandwidth_bytes_per_s : local;
    // One rate for all links, of which a connection has several: local = locals * rate, global = globals *
    // rate, and a node's own is one.
    int locals = 0;
    double globals = 0;
    for (int n = 1; n <= kMaxParallelLinks && locals == 0; ++n) {
      globals = std::round(global / local * n);
      if (globals >= 1 && std::abs(globals * local / n - global) <= 1e-9 * global) locals = n;
    }
    if (locals == 0 || local / locals < widest_injection() * (1 - 1e-9))
      inexpressible(fmt::format("a dragonfly with local links of {} and global links of {} bytes/s below "
                                "nodes that send {}",
                                local, global, widest_injection()),
                    "expected both multiples of one rate that is at least a node's");
    port_rebate_s_ = fabric.switch_latency_s / 2;
    const sg4::ClusterCallbacks callbacks([&](sg4::NetZone* zone, const Coordinates&, unsigned long id) {
      const int nodes = fabric.nodes_per_router;
      const int place = static_cast<int>(id) % nodes;
      const int router = static_cast<int>(id) / nodes % fabric.routers;
      const int group = static_cast<int>(id) / nodes / fabric.routers;
      // Ours reaches group g from router (g - own - 1) mod groups; theirs from router g.
      int own = router;
      if (router == group)
        own = fabric.groups - 1;
      else if (router < fabric.groups)
        own = (router - group - 1 + fabric.groups) % fabric.groups;
      return node_or_hole(zone, (group * fabric.routers + own) * nodes + place);
    });
    const auto count = [](double n) { return static_cast<unsigned>(n); };
    sg4::create_dragonfly_zone("cluster", nullptr,
                               {{count(fabric.groups), count(globals)},
                                {1, 1},
                                {count(fabric.routers), count(locals)},
                                count(fabric.nodes_per_router)},
                               callbacks, local / locals, fabric.switch_latency_s,
                               sg4::Link::SharingPolicy::SPLITDUPLEX)
        ->seal();
  }

  void rails() {
    const int devices = cluster_.devices();
    if (devices > kMaxFullDevices)
      inexpressible(fmt::format("rails under {} devices but by a route for each pair", devices),
                    fmt::format("expected at most {} devices", kMaxFullDevices));
    sg4::NetZone* root = sg4::create_full_zone("cluster");
    for (int d = 0; d < devices; ++d) make_host(root, d);
    // A switch only delays.
    sg4::Link* crossing = root->create_link("switch", kWide)
                              ->set_latency(cluster_.fabric.switch_latency_s)
                              ->set_sharing_policy(sg4::Link::SharingPolicy::FATPIPE)
                              ->seal();
    for (int a = 0; a < devices; ++a) {
      for (int b = 0; b < devices; ++b) {
        if (a == b) continue;
        const Route route = network_.route(a, b);
        Links links = links_of(root, route.links);
        links.insert(links.end(), static_cast<std::size_t>(route.switches), sg4::LinkInRoute(crossing));
        root->add_route(hosts[static_cast<std::size_t>(a)]->get_netpoint(),
                        hosts[static_cast<std::size_t>(b)]->get_netpoint(), nullptr, nullptr, links, false);
      }
    }
    root->seal();
  }

  const Cluster& cluster_;
  Network network_;
  std::unordered_map<LinkId, sg4::Link*> links_;  // looked up only
  double port_rebate_s_ = 0;  // latency that the fabric's own zone counts too often, at each end
};

}  // namespace

struct ZonePlatform::Impl {
  std::unique_ptr<sg4::Engine> engine;
  std::vector<sg4::Host*> hosts;
  Impl() {
    xbt_log_control_set("root.thresh:warning");
    engine = std::make_unique<sg4::Engine>("orrery");
    for (const std::string_view setting : kSimgridSettings) sg4::Engine::set_config(std::string(setting));
  }
};

ZonePlatform::ZonePlatform(const Cluster& cluster) : impl_(std::make_unique<Impl>()) {
  Builder builder(cluster);
  builder.build();
  impl_->hosts = std::move(builder.hosts);
}

ZonePlatform::ZonePlatform(const Cluster& cluster, const std::string& platform_xml)
    : impl_(std::make_unique<Impl>()) {
  impl_->engine->load_platform(platform_xml);
  for (int d = 0; d < cluster.devices(); ++d) {
    sg4::Host* host = impl_->engine->host_by_name_or_null(host_name(cluster, d));
    if (host == nullptr)
      throw UserError(platform_xml, 0, "has no host " + host_name(cluster, d),
                      "expected the same cluster's platform");
    impl_->hosts.push_back(host);
  }
}

ZonePlatform::~ZonePlatform() = default;

int ZonePlatform::hosts() const {
  return static_cast<int>(impl_->engine->get_host_count());
}

int ZonePlatform::links() const {
  return static_cast<int>(impl_->engine->get_link_count());
}

ZoneRoute ZonePlatform::route(int source, int destination) const {
  std::vector<sg4::Link*> links;
  ZoneRoute route;
  impl_->hosts[static_cast<std::size_t>(source)]->route_to(
      impl_->hosts[static_cast<std::size_t>(destination)], links, &route.latency_s);
  route.bandwidth_bytes_per_s = std::numeric_limits<double>::infinity();
  for (const sg4::Link* link : links) {
    route.links.push_back(link->get_name());
    route.bandwidth_bytes_per_s = std::min(route.bandwidth_bytes_per_s, link->get_bandwidth());
  }
  return route;
}

std::vector<double> ZonePlatform::run(const std::vector<ZoneTransfer>& transfers) {
  std::vector<double> ends(transfers.size(), -1);
  std::unordered_map<const sg4::Activity*, std::size_t> index;  // looked up only
  std::vector<sg4::CommPtr> live;                               // SimGrid does not keep them alive
  sg4::Activity::on_completion_cb([&](const sg4::Activity& activity) {
    if (const auto at = index.find(&activity); at != index.end()) ends[at->second] = sg4::Engine::get_clock();
  });
  for (const ZoneTransfer& transfer : transfers) {
    sg4::CommPtr comm = sg4::Comm::sendto_init(impl_->hosts[static_cast<std::size_t>(transfer.source)],
                                               impl_->hosts[static_cast<std::size_t>(transfer.destination)]);
    comm->set_payload_size(static_cast<std::uint64_t>(std::max(1.0, std::round(transfer.bytes))));
    index.emplace(comm.get(), live.size());
    live.push_back(comm);
    comm->vetoable_start();
  }
  impl_->engine->run();
  if (std::count(ends.begin(), ends.end(), -1.0) > 0) throw InternalError("a transfer never ended");
  return ends;
}

}  // namespace orrery::sim
