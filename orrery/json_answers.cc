// The smaller answers, as JSON.
#include <algorithm>

#include "orrery/records.h"
#include "topologies/link_class.h"

namespace orrery {
namespace {

template <typename Entry>
Record<Entry> entry_record() {
  Record<Entry> r;
  r.value("name", "by which it is known", [](const Entry& e) { return e.name; })
      .value("description", "in words", [](const Entry& e) { return e.description; })
      .value("source", "where its figures are from",
             [](const Entry& e) { return e.source.empty() ? nullptr : &e.source; })
      .value("rests_on", "fitted, datasheet or assumed",
             [](const Entry& e) { return e.rests_on.empty() ? nullptr : &e.rests_on; });
  return r;
}

const Record<CatalogEntry>& plain_entry_record() {
  static const auto record = entry_record<CatalogEntry>();
  return record;
}

const Record<CatalogWorkload>& workload_entry_record() {
  using W = CatalogWorkload;
  static const auto record =
      entry_record<W>()
          .value("parameters", "of it", [](const W& w) { return w.parameters; })
          .value("active_parameters", "that a token meets", [](const W& w) { return w.active_parameters; })
          .value("layers", "of it", [](const W& w) { return w.layers; })
          .value("seq_len", "tokens of a sample; 0: no sequences", [](const W& w) { return w.seq_len; })
          .value("forward_flops", "of a sample", [](const W& w) { return w.forward_flops; });
  return record;
}

const Record<CatalogCluster>& cluster_entry_record() {
  using C = CatalogCluster;
  static const auto known = [](auto of) {  // localhost is to be discovered
    return [of](const C& c) { return c.device.empty() ? std::nullopt : std::optional(of(c)); };
  };
  static const auto priced = [](const C& c) { return !c.device.empty() && c.price_usd_per_device_hour > 0; };
  static const auto record =
      entry_record<C>()
          .value("device", "of its nodes", known([](const C& c) { return c.device; }))
          .value("devices", "of a node", known([](const C& c) { return c.devices; }))
          .value("memory_bytes", "of a device", known([](const C& c) { return c.memory_bytes; }))
          .value("link_bytes_per_s", "of a device to the others of its node, each direction",
                 known([](const C& c) { return c.link_bytes_per_s; }))
          .value("network_bytes_per_s", "of a node's ports together, each direction",
                 known([](const C& c) { return c.network_bytes_per_s; }))
          .value("price_usd_per_device_hour", "by list",
                 [](const C& c) { return priced(c) ? &c.price_usd_per_device_hour : nullptr; })
          .value("price_as_of", "whose list, and since when",
                 [](const C& c) { return priced(c) ? &c.price_as_of : nullptr; });
  return record;
}

const Record<CatalogDevice>& device_entry_record() {
  using D = CatalogDevice;
  static const auto record =
      entry_record<D>()
          .value("memory_bytes", "of it", [](const D& d) { return d.memory_bytes; })
          .value("memory_bandwidth_bytes_per_s", "of it",
                 [](const D& d) { return d.memory_bandwidth_bytes_per_s; })
          .given("peak_flops_per_s", "dense, by the types that it computes in",
                 shape_of_map({{"type", "number"}}),
                 [](const D& d) {
                   Json peaks = Json::object();
                   for (const auto& [type, peak] : d.peak_flops_per_s)
                     peaks[std::string(name_of(type))] = peak;
                   return peaks;
                 })
          .value("price_usd_per_hour", "by list",
                 [](const D& d) { return d.price_usd_per_hour > 0 ? &d.price_usd_per_hour : nullptr; })
          .value("price_as_of", "whose list, and since when",
                 [](const D& d) { return d.price_usd_per_hour > 0 ? &d.price_as_of : nullptr; });
  return record;
}

using Narrowing = std::pair<std::string, double>;

const Record<Narrowing>& narrowing_record() {
  static const auto record =
      Record<Narrowing>()
          .value("measurement", "that would narrow the interval", [](const Narrowing& n) { return n.first; })
          .value("share", "of what is not known that it takes away",
                 [](const Narrowing& n) { return n.second; });
  return record;
}

const Record<DeviceOutlook>& outlook_record() {
  using O = DeviceOutlook;
  static const auto record =
      Record<O>()
          .value("name", "of the device", [](const O& o) { return o.device; })
          .value("step_time_low", "90% of steps take at least so many times what is predicted",
                 [](const O& o) { return o.step.low; })
          .value("step_time_high", "and at most", [](const O& o) { return o.step.high; })
          .object(
              "rests_on", "what the figures rest on", rests_on_record(),
              [](const O& o) -> const auto& { return o.rests_on; })
          .list(
              "narrowed_by", "what would narrow that, largest share first", narrowing_record(),
              [](const O& o) -> const auto& { return o.measurements; });
  return record;
}

struct OfCluster {
  const NodeGroup& group;
  const DeviceProfile& device;
};

const Record<OfCluster>& group_record() {
  using G = OfCluster;
  static const auto record =
      Record<G>()
          .value("nodes", "of the group", [](const G& g) { return g.group.count; })
          .value("devices", "of a node", [](const G& g) { return g.group.node.devices; })
          .value("device", "its name", [](const G& g) { return g.device.name; })
          .value("profile", kProfileMeaning, [](const G& g) { return profile_of(g.device); })
          .value("profile_source", "where its figures are from", [](const G& g) { return g.device.source; })
          .value("memory_bytes", "of a device", [](const G& g) { return g.device.memory_bytes; })
          .value("network_ports", "of a node", [](const G& g) { return g.group.node.nic.count; })
          .value("memory_bandwidth_bytes_per_s", "of a device",
                 [](const G& g) { return g.device.memory_bandwidth_bytes_per_s; })
          .value("peak_fp32_flops_per_s", "of a device",
                 [](const G& g) { return g.device.peak(DType::fp32); });
  return record;
}

const Record<sim::LinkLoad>& link_record() {
  using L = sim::LinkLoad;
  static const auto record =
      Record<L>()
          .value("name", "of the link", [](const L& l) { return l.name; })
          .value("utilization", "of its rate over the step, as a fraction",
                 [](const L& l) { return l.utilization; })
          .value("bytes", "that it carries in the step", [](const L& l) { return l.bytes; });
  return record;
}

const Record<CollectiveTime>& collective_time_record() {
  using C = CollectiveTime;
  static const auto record =
      Record<C>()
          .value("bytes", "as nccl-tests counts them", [](const C& c) { return c.bytes; })
          .value("time_s", "of the operation", [](const C& c) { return c.time_s; })
          .value("algbw_bytes_per_s", "bytes over time", [](const C& c) { return c.algbw_bytes_per_s; })
          .value("busbw_bytes_per_s", "what the links carry, as nccl-tests counts it",
                 [](const C& c) { return c.busbw_bytes_per_s; })
          .value("algorithm", "that the library chooses", [](const C& c) { return name_of(c.algorithm); })
          .value("protocol", "that the library chooses", [](const C& c) { return name_of(c.protocol); })
          .value("events", "that were simulated", [](const C& c) { return c.events; })
          .value("wall_s", "that it took to simulate, by the clock", [](const C& c) { return c.wall_s; });
  return record;
}

const Record<CollectiveRequest>& network_rests_record() {
  static const auto record = Record<CollectiveRequest>().value(
      "network", "calibrated, fitted, datasheet or assumed",
      [](const CollectiveRequest& r) { return name_of(planner::network_foundation(r.cluster)); });
  return record;
}

const Record<planner::ExportedFile>& file_record() {
  using F = planner::ExportedFile;
  static const auto record =
      Record<F>()
          .value("name", "of the file", [](const F& f) { return f.name; })
          .value("bytes", "of a binary one",
                 [](const F& f) { return f.binary ? std::optional(f.content.size()) : std::nullopt; })
          .value("content", "of one of text", [](const F& f) { return f.binary ? nullptr : &f.content; });
  return record;
}

const Record<measurements::Kind>& kind_record() {
  using K = measurements::Kind;
  static const auto record = Record<K>()
                                 .value("name", "of the kind of file", [](const K& k) { return k.name; })
                                 .value("taken", "what is taken from it", [](const K& k) { return k.taken; });
  return record;
}

// ---- describe ----

const Record<Part>& figures_of_part_record() {
  static const auto record = Record<Part>()
                                 .value("parameters", "of all of them, tied tensors where they are held",
                                        [](const Part& p) { return p.parameters; })
                                 .value("forward_flops", "of all of them, for a sample",
                                        [](const Part& p) { return p.forward_flops; })
                                 .value("output_bytes", "that they write for a sample",
                                        [](const Part& p) { return p.output_bytes; });
  return record;
}

const Record<Part>& layers_record() {
  static const auto record =
      Record<Part>()
          .value("first", "of neighbouring layers that are alike", [](const Part& p) { return p.first; })
          .value("count", "of them", [](const Part& p) { return p.count; })
          .value("holds", "the operators of one", [](const Part& p) { return p.name; })
          .with(
              figures_of_part_record(), [](const Part& p) -> const auto& { return p; });
  return record;
}

const Record<Part>& operators_record() {
  static const auto record =
      Record<Part>()
          .value("kind", "of operator", [](const Part& p) { return p.name; })
          .value("count", "of them", [](const Part& p) { return p.count; })
          .with(
              figures_of_part_record(), [](const Part& p) -> const auto& { return p; });
  return record;
}

}  // namespace

const Record<Catalog>& catalog_record() {
  using C = Catalog;
  static const auto record = Record<C>()
                                 .list(
                                     "workloads", "known by name", workload_entry_record(),
                                     [](const C& c) -> const auto& { return c.workloads; })
                                 .list(
                                     "clusters", "known by name", cluster_entry_record(),
                                     [](const C& c) -> const auto& { return c.clusters; })
                                 .list(
                                     "networks", "known by name", plain_entry_record(),
                                     [](const C& c) -> const auto& { return c.networks; })
                                 .list(
                                     "devices", "known by name", device_entry_record(),
                                     [](const C& c) -> const auto& { return c.devices; })
                                 .list(
                                     "links", "kinds of links known by name", plain_entry_record(),
                                     [](const C& c) -> const auto& { return c.links; })
                                 .list(
                                     "runtimes", "known by name", plain_entry_record(),
                                     [](const C& c) -> const auto& { return c.runtimes; });
  return record;
}

const Record<DeviceCheck>& device_record() {
  using D = DeviceCheck;
  static const auto record =
      Record<D>()
          .value("implausible", "what is far from all of the catalog's devices",
                 [](const D& d) { return d.review.implausible; })
          .value("assumed", "what the file does not say", [](const D& d) { return d.review.assumed; })
          .list(
              "devices", "that the file describes", outlook_record(),
              [](const D& d) -> const auto& { return d.outlooks; });
  return record;
}

const Record<Cluster>& cluster_record() {
  using C = Cluster;
  static const auto record =
      Record<C>()
          .value("name", "of the cluster", [](const C& c) { return c.name; })
          .value("description", "in words", [](const C& c) { return c.description; })
          .value("source", "where its figures are from", [](const C& c) { return c.source; })
          .value("collectives", "whose: nccl, rccl or mpi",
                 [](const C& c) { return name_of(c.communication.library); })
          .value("collectives_source", "where their figures are from",
                 [](const C& c) { return c.communication.source; })
          .value("links_rest_on", "calibrated, fitted, datasheet or assumed",
                 [](const C& c) { return name_of(links_foundation(c)); })
          .value("nodes", "of the cluster", [](const C& c) { return c.nodes(); })
          .value("devices", "of the cluster", [](const C& c) { return c.devices(); })
          .list("groups", "of nodes that are alike", group_record(), [](const C& c) {
            std::vector<OfCluster> groups;
            for (const NodeGroup& group : c.groups) groups.push_back({group, c.profiles[group.node.profile]});
            return groups;
          });
  return record;
}

const Record<Simulated>& simulated_record() {
  using S = Simulated;
  static const auto simulation = [](const S& s) -> const sim::Simulation& {
    return s.evaluation.simulation.value();
  };
  static const auto record =
      Record<S>()
          .with(
              job_record(), [](const S& s) -> const auto& { return *s.evaluation.plan.job; })
          .with(
              evaluation_record(), [](const S& s) -> const auto& { return s.evaluation; })
          .value("ranks", "of the plan", [](const S& s) { return simulation(s).ranks; })
          .value("simulated_ranks", "one of each class of symmetric ranks",
                 [](const S& s) { return simulation(s).simulated_ranks; })
          .value("events", "that were simulated", [](const S& s) { return simulation(s).events; })
          .value("step_ends_s", "of the steps that were simulated",
                 [](const S& s) { return simulation(s).step_ends_s; })
          .value("wall_s", "that it took, by the clock", [](const S& s) { return s.wall_s; })
          .value("warnings", "of the plan",
                 [](const S& s) { return planner::warnings_about(s.evaluation.plan); })
          .list("links", "the busiest", link_record(), [](const S& s) {
            const std::vector<sim::LinkLoad>& links = simulation(s).links;
            return std::vector<sim::LinkLoad>(
                links.begin(),
                links.begin() + static_cast<std::ptrdiff_t>(std::min(links.size(), kLinksReported)));
          });
  return record;
}

const Record<CollectiveAnswer>& collective_record() {
  using A = CollectiveAnswer;
  static const auto record =
      Record<A>()
          .value("op", "the operation", [](const A& a) { return name_of(a.request.kind); })
          .value("cluster", "that it runs on", [](const A& a) { return a.request.cluster.name; })
          .value("devices", "of the cluster; all take part",
                 [](const A& a) { return a.request.cluster.devices(); })
          .value("nodes", "of the cluster", [](const A& a) { return a.request.cluster.nodes(); })
          .value("detail", "flows or messages",
                 [](const A& a) { return a.request.detail == sim::Detail::messages ? "messages" : "flows"; })
          .object(
              "rests_on", "what the figures rest on", network_rests_record(),
              [](const A& a) -> const auto& { return a.request; })
          .list(
              "results", "by size", collective_time_record(),
              [](const A& a) -> const auto& { return a.times; });
  return record;
}

const Record<ExportAnswer>& export_record() {
  using A = ExportAnswer;
  static const auto record =
      Record<A>()
          .with(
              job_record(), [](const A& a) -> const auto& { return a.job; })
          .value("target", "the system that it is for", [](const A& a) { return a.target; })
          .value("notes", "what the target cannot express, as its scripts say it",
                 [](const A& a) { return planner::notes_in(a.files); })
          .list(
              "files", "that the system reads", file_record(),
              [](const A& a) -> const auto& { return a.files; });
  return record;
}

const Record<std::vector<measurements::Kind>>& kinds_record() {
  using K = std::vector<measurements::Kind>;
  static const auto record = Record<K>().list(
      "kinds", "of files that calibrations read", kind_record(), [](const K& k) -> const auto& { return k; });
  return record;
}

const Record<Description>& description_record() {
  using D = Description;
  static const auto record =
      Record<D>()
          .value("workload", "its name", [](const D& d) { return d.workload.name; })
          .value("source", "who says what it is", [](const D& d) { return d.workload.source; })
          .value(
              "family", "of a stack of transformer layers",
              [](const D& d) { return d.workload.transformer ? &d.workload.transformer->family : nullptr; })
          .value("layers", "of it", [](const D& d) { return d.workload.layers; })
          .value("seq_len", "tokens of a sample; 0: no sequences", [](const D& d) { return d.seq_len; })
          .value("precision", "in which weights and outputs are counted",
                 [](const D& d) { return name_of(d.precision); })
          .value("parameters", "tied tensors counted once", [](const D& d) { return d.parameters; })
          .value("active_parameters", "that a token meets", [](const D& d) { return d.active_parameters; })
          .value("weight_bytes", "at the precision", [](const D& d) { return d.weight_bytes; })
          .value("forward_flops", "of a sample", [](const D& d) { return d.forward_flops; })
          .value("model_flops", "of a sample trained", [](const D& d) { return d.model_flops; })
          .value("output_bytes", "of a sample", [](const D& d) { return d.output_bytes; })
          .list(
              "parts", "its layers, neighbours that are alike together", layers_record(),
              [](const D& d) -> const auto& { return d.layers; })
          .list(
              "operators", "by kind", operators_record(),
              [](const D& d) -> const auto& { return d.operators; })
          .value("assumed", "what the file does not say", [](const D& d) { return d.assumed; });
  return record;
}

Json to_json(const Catalog& catalog) {
  return catalog_record().json(catalog);
}
Json to_json(const Description& described) {
  return description_record().json(described);
}
Json to_json(const DeviceCheck& check) {
  return device_record().json(check);
}
Json to_json(const Cluster& cluster) {
  return cluster_record().json(cluster);
}
Json to_json(const Simulated& simulated) {
  return simulated_record().json(simulated);
}
Json to_json(const CollectiveRequest& request, const std::vector<CollectiveTime>& times) {
  return collective_record().json({request, times});
}
Json to_json(const Job& job, std::string_view target, const std::vector<planner::ExportedFile>& files) {
  return export_record().json({job, target, files});
}
Json to_json(const std::vector<measurements::Kind>& kinds) {
  return kinds_record().json(kinds);
}

}  // namespace orrery
