#include "cost/nccl_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "base/error.h"

namespace orrery {
namespace {

// ---- Constants of the tuner itself (src/graph/tuning.cc, 2.28 to 2.30), SI units; those that differ by
// library, generation and link are data (topologies/links).

constexpr double kMicro = 1e-6;

enum Scale { one_node, two_nodes, many_nodes };

// A ring's hop inside a node is at least the proxy's overhead where the ring leaves the node (x3 for Simple).
constexpr double kNetOverhead = 1.0 * kMicro;
constexpr double kTreeShare = 0.92;
constexpr double kTreeAcross = 0.85;  // NCCL_TOPO_PATTERN_TREE
constexpr double kPatShare = 0.75;
constexpr int kNvlsRanks = 6;

// Tree's bandwidth correction at 64 B x 2^i, all-reduce, {LL, LL128, Simple} (2.19 to 2.30).
constexpr double kTreeCorrection[3][24] = {
    {1.0, 1.0, 1.0, 1.0, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1.0, 1.0, 1.0, 1.0, 1.0},
    {1.0, 1.0, 1.0, 1.0, 1.0, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1.0, 1.0, 1.0},
    {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9, .9}};

// Interpolated between the powers of two, so that time stays monotone in bytes (a factor never doubles
// within a doubling).
double tree_correction(int protocol, double bytes) {
  const double position = std::log2(std::max(bytes, 64.0) / 64.0);
  if (position >= 24) return 1;
  const int below = static_cast<int>(position);
  const double share = position - below;
  const double at = kTreeCorrection[protocol][below];
  const double next = below + 1 < 24 ? kTreeCorrection[protocol][below + 1] : 1.0;
  return at * std::pow(next / at, share);
}

// ---- The groups' figures ----------------------------------------------------------------------------------

struct NcclRates {
  const LibraryModel* library;
  const LinkClass* profile;
  double intra_nominal;  // a device's link
  double intra;          // achieved by rings of long messages
  double at_bridge;      // of that, what others that cross the bridge leave; not above intra
  double inter;          // achieved by all ports of a node
  double port;           // achieved by one port
  double most_ll;        // bus bandwidth of the LL protocol
  double latency_scale;
};

bool on_pcie(PathClass path) {
  return path == PathClass::pcie || path == PathClass::shared_memory;
}

NcclRates nccl_rates_of(const GroupShape& shape, const Cluster& cluster) {
  NcclRates r{};
  r.library = &library_model(cluster.communication.library);
  r.profile = &r.library->link(on_pcie(shape.intra), shape.generation);
  const CommunicationProfile& fabric = cluster.communication;
  const bool inside = shape.ranks_per_node > 1;
  r.intra_nominal = inside ? shape.intra_bandwidth_bytes_per_s : 0;
  const double efficiency = fabric.calibrated ? fabric.intra_efficiency : r.profile->link_efficiency;
  r.intra = r.intra_nominal * efficiency;
  // A ring crosses each bridge once each way.
  const double bridge = shape.bridge_bandwidth_bytes_per_s;
  if (bridge > 0) r.intra = std::min(r.intra, bridge * shape.at_bridges);
  r.at_bridge = bridge > 0 ? std::min(r.intra, bridge) : r.intra;
  r.inter = shape.inter_bandwidth_bytes_per_s * fabric.network_efficiency;
  r.port = shape.port_bandwidth_bytes_per_s * fabric.network_efficiency;
  const Scale scale = shape.nodes == 1 ? one_node : shape.nodes == 2 ? two_nodes : many_nodes;
  r.most_ll = r.library->most_ll(shape.generation)[scale];
  r.latency_scale = fabric.latency_scale;
  return r;
}

int index_of(Protocol protocol) {
  return static_cast<int>(protocol);
}

// LL128 needs 16-byte stores that arrive whole: NVLink inside, GPUDirect with no host bridge on the way out.
bool ll128_works(const GroupShape& shape, const NcclRates& r) {
  return r.library->ll128_share > 0 && shape.intra == PathClass::nvlink && !shape.generation.empty() &&
         (shape.nodes == 1 || shape.direct);
}

// The fitted hops are those of links of these latencies (as the catalog has them); longer links add the rest.
constexpr double kNominalNvlink = 1 * kMicro;
constexpr double kNominalPcie = 2 * kMicro;

double beyond_nominal(const GroupShape& shape) {
  const double nominal = shape.intra == PathClass::nvlink ? kNominalNvlink : kNominalPcie;
  return std::max(0.0, shape.intra_latency_s - nominal);
}

double intra_hop(const GroupShape& shape, const NcclRates& r, Protocol protocol) {
  const auto& more = shape.intra == PathClass::nvlink ? r.library->direct_step_s : r.library->pcie_step_s;
  double hop = r.profile->hop_s + more[index_of(protocol)];
  if (shape.nodes > 1) hop = std::max(hop, kNetOverhead * (protocol == Protocol::simple ? 3 : 1));
  return hop + beyond_nominal(shape);
}

double inter_hop(const GroupShape& shape, double constant, Protocol protocol) {
  // The Simple protocol pays the network's latency twice: data, then the flush.
  return constant + shape.inter_latency_s * (protocol == Protocol::simple ? 2 : 1);
}

double base_of(const NcclRates& r, Protocol protocol) {
  const double fitted = r.profile->base_s;
  if (protocol == Protocol::simple) return fitted + r.profile->simple_s;
  return protocol == Protocol::ll128 ? fitted + r.profile->ll128_s : fitted;
}

// Seconds of `on_link` bytes-over-rate under a protocol, pipeline fill included.
double ramped(const NcclRates& r, Protocol protocol, double on_link) {
  return protocol == Protocol::simple ? with_pipeline_fill(on_link, r.profile->ramp_s) : on_link;
}

double protocol_rate(const NcclRates& r, Protocol protocol, double rate) {
  if (protocol == Protocol::ll) return std::min(r.library->ll_share * rate, r.most_ll);
  return protocol == Protocol::ll128 ? r.library->ll128_share * rate : rate;
}

struct NcclCandidate {
  Algorithm algorithm = Algorithm::ring;
  Protocol protocol = Protocol::simple;
  double latency_s = 0;
  double seconds = 0;
  double wire_per_edge = 0;
};

NcclCandidate scaled(NcclCandidate c, const NcclRates& r) {
  c.seconds += (r.latency_scale - 1) * c.latency_s;
  c.latency_s *= r.latency_scale;
  return c;
}

bool reduces_all(CollectiveKind kind) {
  return kind == CollectiveKind::all_reduce;
}
bool shards(CollectiveKind kind) {
  return kind == CollectiveKind::reduce_scatter || kind == CollectiveKind::all_gather;
}

// Ring: 2(n-1) steps (all-reduce), n-1 (reduce-scatter, all-gather) of bytes / n each, or a chain of n-1 hops
// that all bytes pass (broadcast, reduce).
NcclCandidate ring(CollectiveKind kind, double bytes, const GroupShape& shape, const NcclRates& r,
                   Protocol protocol) {
  const double n = shape.ranks;
  const double nodes = shape.nodes;
  const double turns = reduces_all(kind) ? 2 : 1;
  const double steps = turns * (n - 1);
  const double inter_steps = turns * (nodes - 1);
  const bool chain = !reduces_all(kind) && !shards(kind);
  const double edge = chain ? 1.0 : steps / n;

  NcclCandidate c{Algorithm::ring, protocol, base_of(r, protocol), 0, edge};
  c.latency_s += (steps - inter_steps) * intra_hop(shape, r, protocol);
  if (nodes > 1)
    c.latency_s += inter_steps * inter_hop(shape, r.library->ring_network_s[index_of(protocol)], protocol);

  // The local copy of a rank's own part shares the step's bandwidth on the device, not the network's.
  const double copied = chain ? 1.0 : (steps + r.profile->copy_steps) / n;
  double on_link = 0;
  if (r.intra > 0) on_link = bytes * copied / protocol_rate(r, protocol, r.intra);
  if (r.at_bridge < r.intra) on_link = std::max(on_link, bytes * edge / r.at_bridge);
  if (nodes > 1) on_link = std::max(on_link, bytes * edge / protocol_rate(r, protocol, r.inter));
  c.seconds = c.latency_s + ramped(r, protocol, on_link);
  return c;
}

// Double binary tree over nodes, a chain inside each (all-reduce): a device's link carries every byte up and
// down, a node's ports carry it up and down too, or once each way where there are only two nodes.
NcclCandidate tree(double bytes, const GroupShape& shape, const NcclRates& r, Protocol protocol) {
  NcclCandidate c{Algorithm::tree, protocol, base_of(r, protocol), 0, 1.0};
  const double depth = std::ceil(std::log2(static_cast<double>(shape.nodes)));
  c.latency_s += 2 * ((shape.ranks_per_node - 1) * intra_hop(shape, r, protocol));
  if (shape.nodes > 1) {
    c.latency_s += 2 * depth * inter_hop(shape, r.library->tree_network_s[index_of(protocol)], protocol);
  }
  double on_link = 0;
  if (r.intra > 0) {
    // Across nodes the chains of the two trees share links with those that leave the node.
    const double share = shape.nodes > 1 ? kTreeShare * kTreeAcross : kTreeShare;
    on_link = 2 * bytes / protocol_rate(r, protocol, share * r.at_bridge);
  }
  if (shape.nodes > 1) {
    const double passes = shape.nodes == 2 ? 1 : 2;
    on_link = std::max(on_link, passes * bytes / protocol_rate(r, protocol, kTreeShare * r.inter));
  }
  on_link /= tree_correction(index_of(protocol), bytes);
  c.seconds = c.latency_s + on_link;
  return c;
}

// NVLink SHARP: the switch reduces and multicasts. All-reduce: a device sends its bytes once and its part of
// the result once; reduce-scatter and all-gather: the bytes once, in one direction.
double nvls_on_link(CollectiveKind kind, double bytes, const GroupShape& shape, const NcclRates& r) {
  const double passes = reduces_all(kind) ? 1 + 1.0 / shape.ranks_per_node : 1;
  return passes * bytes / (r.intra_nominal * r.profile->nvls_efficiency);
}

std::optional<NcclCandidate> nvls(CollectiveKind kind, double bytes, const GroupShape& shape,
                                  const NcclRates& r) {
  if (!shape.in_network_reduction || r.profile->nvls_efficiency <= 0 || shape.nodes > 1) return std::nullopt;
  if (!reduces_all(kind) || shape.ranks < kNvlsRanks) return std::nullopt;
  NcclCandidate c{Algorithm::nvls, Protocol::simple, r.profile->nvls_s, 0, 1.0};
  c.latency_s += beyond_nominal(shape);
  c.seconds = c.latency_s + with_pipeline_fill(nvls_on_link(kind, bytes, shape, r), r.profile->nvls_ramp_s);
  return c;
}

std::optional<NcclCandidate> nvls_tree(CollectiveKind kind, double bytes, const GroupShape& shape,
                                       const NcclRates& r) {
  if (!shape.in_network_reduction || r.profile->nvls_efficiency <= 0 || shape.nodes < 2 ||
      shape.ranks_per_node < 2 || !reduces_all(kind)) {
    return std::nullopt;
  }
  NcclCandidate c{Algorithm::nvls_tree, Protocol::simple, r.profile->nvls_s, 0, 1.0};
  const double depth = std::ceil(std::log2(static_cast<double>(shape.nodes)));
  c.latency_s = c.latency_s + beyond_nominal(shape) +
                2 * depth * inter_hop(shape, r.library->nvls_tree_network_s, Protocol::simple);
  const double passes = shape.nodes == 2 ? 1 : 2;
  const double on_link = std::max(nvls_on_link(kind, bytes, shape, r), passes * bytes / r.inter);
  c.seconds = c.latency_s + with_pipeline_fill(on_link, r.profile->nvls_ramp_s);
  return c;
}

// Parallel aggregated trees: reduce-scatter and all-gather in log2(n) steps, one device a node.
std::optional<NcclCandidate> pat(CollectiveKind kind, double bytes, const GroupShape& shape,
                                 const NcclRates& r) {
  if (r.library->pat_network_s <= 0) return std::nullopt;
  if (!shards(kind) || shape.nodes < 2 || shape.ranks_per_node != 1) return std::nullopt;
  const double n = shape.ranks;
  NcclCandidate c{Algorithm::pat, Protocol::simple, base_of(r, Protocol::simple), 0, (n - 1) / n};
  c.latency_s +=
      std::ceil(std::log2(n)) * inter_hop(shape, r.library->pat_network_s, Protocol::simple) / 3.5 +
      2.8 * kMicro * n;
  c.seconds = c.latency_s + ramped(r, Protocol::simple, bytes * (n - 1) / n / (kPatShare * r.inter));
  return c;
}

// All-to-all, gather, scatter: sends and receives between pairs, all at once.
NcclCandidate pairs(CollectiveKind kind, double bytes, const GroupShape& shape, const NcclRates& r,
                    Protocol protocol) {
  const double n = shape.ranks;
  const bool all = kind == CollectiveKind::all_to_all;
  NcclCandidate c{all ? Algorithm::pairwise : Algorithm::direct, protocol, r.profile->p2p_s, 0, 1 / n};
  if (protocol == Protocol::simple) c.latency_s += r.profile->p2p_simple_s;
  // Eight peers are served at once; each further round of eight adds a hop.
  const double rounds = std::ceil((n - 1) / 8);
  double hop = r.intra > 0 ? r.profile->hop_s + beyond_nominal(shape) : 0;
  if (shape.nodes > 1)
    hop = std::max(hop, inter_hop(shape, r.library->ring_network_s[index_of(protocol)], protocol));
  c.latency_s += rounds * hop;

  const double local = shape.ranks_per_node;
  double on_link = 0;
  if (r.intra > 0) {
    const double efficiency = r.profile->p2p_efficiency;
    const double shared = all ? shape.all_pairs_bandwidth_bytes_per_s : shape.to_one_bandwidth_bytes_per_s;
    double rate = r.intra_nominal * efficiency;
    // Shared NVLinks lose what all NVLinks lose; the processors' interconnect is given as it is reached.
    if (shared > 0) rate = std::min(rate, shape.intra == PathClass::nvlink ? shared * efficiency : shared);
    on_link = bytes * (local - 1) / n / protocol_rate(r, protocol, rate);
    if (all) {
      on_link +=
          bytes * r.profile->p2p_copy_steps / n / protocol_rate(r, protocol, r.intra_nominal * efficiency);
    }
  }
  if (shape.nodes > 1) {
    // All members of a node leave through its ports together; a root alone through its own.
    const double leaving = bytes * (n - shape.min_ranks_per_node) / n;
    on_link =
        std::max(on_link, all ? leaving * local / protocol_rate(r, protocol, r.inter * shape.pairs_share)
                              : leaving / protocol_rate(r, protocol, r.port));
  }
  c.seconds = c.latency_s + ramped(r, protocol, on_link);
  return c;
}

CollectivePlan plan_of(const NcclCandidate& c, double bytes, double nominal_rate) {
  CollectivePlan plan;
  plan.algorithm = c.algorithm;
  plan.protocol = c.protocol;
  plan.latency_s = c.latency_s;
  plan.wire_bytes_per_edge = c.wire_per_edge;
  const double moving = c.seconds - c.latency_s;
  plan.bandwidth_bytes_per_s = bytes > 0 && moving > 0 ? bytes / moving : nominal_rate;
  return plan;
}

}  // namespace

double with_pipeline_fill(double on_link_s, double ramp_s) {
  return on_link_s + std::sqrt(ramp_s * on_link_s);
}

double link_fraction(LinkKind kind, CommunicationLibrary library, const std::string& generation) {
  const LinkClass& link = library_model(library).link(kind == LinkKind::pcie, generation);
  return std::max({link.link_efficiency, link.p2p_efficiency, link.nvls_efficiency});
}

CollectivePlan nccl_collective(CollectiveKind kind, double bytes, const GroupShape& shape,
                               const Cluster& cluster, const Algorithm* forced) {
  const NcclRates r = nccl_rates_of(shape, cluster);
  std::vector<NcclCandidate> candidates;
  const auto add = [&](const std::optional<NcclCandidate>& c) {
    if (!c || (forced != nullptr && c->algorithm != *forced)) return;
    candidates.push_back(scaled(*c, r));
    const double wide_s = wide_area_s(kind, c->algorithm, shape);
    candidates.back().latency_s += wide_s;
    candidates.back().seconds += wide_s;
  };
  const bool pairwise =
      kind == CollectiveKind::all_to_all || kind == CollectiveKind::gather || kind == CollectiveKind::scatter;
  for (const Protocol protocol : {Protocol::ll, Protocol::ll128, Protocol::simple}) {
    if (pairwise) {
      if (protocol != Protocol::ll128) add(pairs(kind, bytes, shape, r, protocol));
      continue;
    }
    if (protocol == Protocol::ll128 && !ll128_works(shape, r)) continue;
    add(ring(kind, bytes, shape, r, protocol));
    if (reduces_all(kind)) add(tree(bytes, shape, r, protocol));
  }
  add(nvls(kind, bytes, shape, r));
  add(nvls_tree(kind, bytes, shape, r));
  add(pat(kind, bytes, shape, r));
  if (candidates.empty()) {
    throw UserError("algorithm '" + std::string(name_of(*forced)) + "' cannot run " +
                        std::string(name_of(kind)) + " on " + std::to_string(shape.ranks) + " devices of " +
                        std::to_string(shape.nodes) + " nodes",
                    "an algorithm that the library has for it, or auto");
  }
  const auto best =
      std::min_element(candidates.begin(), candidates.end(),
                       [](const NcclCandidate& a, const NcclCandidate& b) { return a.seconds < b.seconds; });
  return plan_of(*best, bytes, r.intra > 0 ? r.intra : r.inter);
}

CollectivePlan nccl_transfer(double bytes, const GroupShape& shape, const Cluster& cluster) {
  const NcclRates r = nccl_rates_of(shape, cluster);
  std::optional<NcclCandidate> best;
  for (const Protocol protocol : {Protocol::ll, Protocol::simple}) {
    NcclCandidate c{Algorithm::direct, protocol, base_of(r, protocol), 0, 1.0};
    double rate = 0;
    if (shape.nodes > 1) {
      c.latency_s += inter_hop(shape, r.library->ring_network_s[index_of(protocol)], protocol);
      rate = std::min(r.port, r.inter);  // less where others leave the node together
    } else {
      c.latency_s += intra_hop(shape, r, protocol);
      rate = shape.message_bandwidth_bytes_per_s() * r.profile->p2p_efficiency;
      // Alone it takes the rate of its links, beside others its part of the bridge.
      if (shape.at_bridges > 1)
        rate = std::max(rate / shape.at_bridges, std::min(rate, shape.bridge_bandwidth_bytes_per_s));
    }
    c.seconds = c.latency_s + ramped(r, protocol, bytes / protocol_rate(r, protocol, rate));
    c = scaled(c, r);
    const double wide_s = wide_area_s(CollectiveKind::all_to_all, Algorithm::direct, shape);
    c.latency_s += wide_s;
    c.seconds += wide_s;
    if (!best || c.seconds < best->seconds) best = c;
  }
  return plan_of(*best, bytes, shape.nodes > 1 ? r.port : r.intra);
}

}  // namespace orrery
