// A plan's cluster as a SimGrid platform file (DTD 4.1): devices as hosts, the links of topologies/network.h
// with their true rates and latencies.
//
// Each node is a zone with routes between its devices and to its gateway; the nodes' zone has a route between
// every two nodes, which says star, fat tree, torus and dragonfly alike. Over rails the way depends on both
// devices, so there every pair of devices has its route.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "handover/export_common.h"
#include "topologies/network.h"

namespace orrery::planner {
namespace {

// Routes go with the square: at most some tens of MB.
constexpr int kMaxNodesByRoute = 512;
constexpr int kMaxDevicesByRoute = 256;

class PlatformWriter {
 public:
  explicit PlatformWriter(const Cluster& cluster) : cluster_(cluster), network_(cluster) {}

  std::string text() {
    const bool rails = cluster_.nodes() > 1 && cluster_.fabric.kind == FabricKind::rail_fat_tree;
    const int most = rails ? kMaxDevicesByRoute : kMaxNodesByRoute;
    if ((rails ? cluster_.devices() : cluster_.nodes()) > most)
      throw UserError(fmt::format("`to` simgrid: a platform file has a route for every two {}, too many here",
                                  rails ? "devices on rails" : "nodes"),
                      fmt::format("expected at most {}", most));
    std::string body = rails ? devices_by_route() : nodes_by_route();
    return "<?xml version='1.0'?>\n<!DOCTYPE platform SYSTEM \"https://simgrid.org/simgrid.dtd\">\n"
           "<!-- Use with network/model:CM02 network/crosstraffic:0 network/TCP-gamma:1e20: rates and "
           "latencies "
           "are the true ones. -->\n<platform version=\"4.1\">\n<zone id=\"cluster\" routing=\"Full\">\n" +
           body + "</zone>\n</platform>\n";
  }

 private:
  std::string host(int device) const {
    const DevicePlace at = cluster_.place(device);
    const DeviceProfile& profile = cluster_.profile_of(device);
    const double peak = *std::max_element(profile.peak_flops_per_s.begin(), profile.peak_flops_per_s.end());
    return fmt::format("<host id=\"{}\" speed=\"{}f\"/>\n", name(at.node, at.local),
                       std::max(1.0, peak * cluster_.device_speed(device)));
  }

  std::string name(int node, int local) const {
    const int device = cluster_.first_device(node) + local;
    const bool gpu = cluster_.profile_of(device).kind == DeviceKind::gpu;
    return fmt::format("node{}.{}{}", node, gpu ? "gpu" : "rank", local);
  }
  std::string name(int device) const {
    const DevicePlace at = cluster_.place(device);
    return name(at.node, at.local);
  }

  // Links that a zone has not declared yet, before its routes (the DTD's order).
  struct Zone {
    std::string links, routes;
    std::set<LinkId> declared;
    std::set<int> crossings;
  };

  std::string contents(Zone& zone, const std::vector<Link>& route, int switches) {
    std::string text;
    for (const Link& link : route) {
      if (zone.declared.insert(link.id).second)
        zone.links += fmt::format("<link id=\"{}\" bandwidth=\"{}Bps\" latency=\"{}s\"/>\n",
                                  network_.name_of(link.id), link.bandwidth_bytes_per_s, link.latency_s);
      text += fmt::format("<link_ctn id=\"{}\"/>", network_.name_of(link.id));
    }
    if (switches > 0) {  // switches only delay; a fat pipe is shared by no one
      if (zone.crossings.insert(switches).second)
        zone.links += fmt::format(
            "<link id=\"switches{}\" bandwidth=\"1e18Bps\" latency=\"{}s\" sharing_policy=\"FATPIPE\"/>\n",
            switches, switches * cluster_.fabric.switch_latency_s);
      text += fmt::format("<link_ctn id=\"switches{}\"/>", switches);
    }
    return text;
  }

  void add_route(Zone& zone, const std::string& from, const std::string& to, const std::vector<Link>& route,
                 int switches = 0) {
    zone.routes += fmt::format("<route src=\"{}\" dst=\"{}\" symmetrical=\"NO\">{}</route>\n", from, to,
                               contents(zone, route, switches));
  }

  // A route between nodes: out of the node, through the fabric, into the other.
  struct Parts {
    std::vector<Link> out, fabric, in;
    int switches = 0;
  };
  Parts parts(int from, int to) const {
    const Route route = network_.route(from, to);
    Parts parts;
    parts.switches = route.switches;
    int ports = 0;
    for (const Link& link : route.links) {
      const bool port = link.kind == LinkKind::nic;
      auto& part = ports == 0 ? parts.out : ports == 1 && !port ? parts.fabric : parts.in;
      part.push_back(link);
      ports += port;
    }
    return parts;
  }

  std::string node(int index) {
    const int first = cluster_.first_device(index);
    const int devices = cluster_.node_type(index).devices;
    const std::string gateway = fmt::format("node{}.gateway", index);
    Zone zone;
    std::string hosts;
    for (int d = 0; d < devices; ++d) {
      hosts += host(first + d);
      for (int e = 0; e < devices; ++e)
        if (d != e)
          add_route(zone, name(index, d), name(index, e), network_.route(first + d, first + e).links);
      if (cluster_.nodes() == 1) continue;
      const int other = cluster_.first_device(index == 0 ? 1 : 0);
      add_route(zone, name(index, d), gateway, parts(first + d, other).out);
      add_route(zone, gateway, name(index, d), parts(other, first + d).in);
    }
    return fmt::format("<zone id=\"node{}\" routing=\"Full\">\n{}<router id=\"{}\"/>\n{}{}</zone>\n", index,
                       hosts, gateway, zone.links, zone.routes);
  }

  std::string nodes_by_route() {
    Zone root;
    std::string zones;
    for (int a = 0; a < cluster_.nodes(); ++a) {
      zones += node(a);
      for (int b = 0; b < cluster_.nodes(); ++b) {
        if (a == b) continue;
        const Parts route = parts(cluster_.first_device(a), cluster_.first_device(b));
        // Where the fabric has no link between them, there and back are the same switches.
        const bool both = route.fabric.empty();
        if (both && b < a) continue;
        root.routes += fmt::format(
            "<zoneRoute src=\"node{0}\" dst=\"node{1}\" gw_src=\"node{0}.gateway\" "
            "gw_dst=\"node{1}.gateway\" "
            "symmetrical=\"{3}\">{2}</zoneRoute>\n",
            a, b, contents(root, route.fabric, route.switches), both ? "YES" : "NO");
      }
    }
    return zones + root.links + root.routes;
  }

  std::string devices_by_route() {
    Zone root;
    std::string hosts;
    for (int a = 0; a < cluster_.devices(); ++a) {
      hosts += host(a);
      for (int b = 0; b < cluster_.devices(); ++b) {
        if (a == b) continue;
        const Route route = network_.route(a, b);
        add_route(root, name(a), name(b), route.links, route.switches);
      }
    }
    return hosts + root.links + root.routes;
  }

  const Cluster& cluster_;
  Network network_;
};

}  // namespace

std::vector<ExportedFile> export_simgrid(const Plan& plan) {
  return {{"platform.xml", PlatformWriter(plan.job->cluster).text()}};
}

}  // namespace orrery::planner
