#include "cost/hierarchical_model.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.h"
#include "cost/nccl_model.h"
#include "topologies/link_class.h"

namespace orrery {
namespace {

struct Rates {
  const LibraryModel* library = nullptr;
  const LinkClass* link = nullptr;
  double inside = 0, inside_pairs = 0;  // of a device: rings, and pairs all at once
  double between = 0, port = 0;         // of a node's ports together, and of one
};

Rates rates_of(const GroupShape& shape, const Cluster& cluster) {
  Rates r;
  const CommunicationProfile& fabric = cluster.communication;
  r.library = &library_model(fabric.library);
  const bool pcie = shape.intra == PathClass::pcie || shape.intra == PathClass::shared_memory;
  r.link = &r.library->link(pcie, shape.generation);
  if (shape.ranks_per_node > 1) {
    const auto reached = [&](double fraction) {
      return fabric.calibrated ? fabric.intra_efficiency : fraction;
    };
    r.inside = shape.intra_bandwidth_bytes_per_s * reached(r.link->link_efficiency);
    if (shape.bridge_bandwidth_bytes_per_s > 0)
      r.inside = std::min(r.inside, shape.bridge_bandwidth_bytes_per_s);
    const double pairs = shape.all_pairs_bandwidth_bytes_per_s > 0 ? shape.all_pairs_bandwidth_bytes_per_s
                                                                   : shape.intra_bandwidth_bytes_per_s;
    r.inside_pairs = pairs * reached(r.link->p2p_efficiency);
  }
  r.between = shape.inter_bandwidth_bytes_per_s * fabric.network_efficiency;
  r.port = shape.port_bandwidth_bytes_per_s * fabric.network_efficiency;
  return r;
}

double step_inside(const GroupShape& shape, const Rates& r) {
  return r.link->hop_s + shape.intra_latency_s;
}

// Bytes that a device sends inside its node, and a node's ports (gather, scatter: one port) between nodes.
struct Work {
  double inside_bytes = 0, between_bytes = 0;
  double turns = 1;  // all-reduce: there and back
  bool pairs = false;
};

Work work_of(CollectiveKind kind, double bytes, const GroupShape& shape) {
  const double n = shape.ranks;
  const double p = shape.ranks_per_node;
  const double nodes = shape.nodes;
  switch (kind) {
    case CollectiveKind::all_reduce:
      return {2 * bytes * (p - 1) / p, 2 * bytes * (nodes - 1) / nodes, 2};
    case CollectiveKind::reduce_scatter:
    case CollectiveKind::all_gather:
      return {bytes * (p - 1) / p, bytes * (nodes - 1) / nodes, 1};
    case CollectiveKind::broadcast:
    case CollectiveKind::reduce:
      return {bytes, bytes, 1};
    case CollectiveKind::all_to_all:
      return {bytes * (p - 1) / n, bytes * p * (n - shape.min_ranks_per_node) / n, 1, true};
    case CollectiveKind::gather:
    case CollectiveKind::scatter:
      return {bytes * (p - 1) / n, bytes * (n - shape.min_ranks_per_node) / n, 1, true};
  }
  return {};
}

struct Stage {
  double moving_s = 0;   // of the bytes
  double latency_s = 0;  // of the steps
};

Stage inside_nodes(const Work& work, const GroupShape& shape, const Rates& r) {
  if (r.inside <= 0) return {};
  const double steps = work.pairs ? 1 : work.turns * (shape.ranks_per_node - 1);
  return {work.inside_bytes / (work.pairs ? r.inside_pairs : r.inside), steps * step_inside(shape, r)};
}

Stage ring_between_nodes(CollectiveKind kind, Algorithm algorithm, const Work& work, const GroupShape& shape,
                         const Rates& r) {
  if (shape.nodes == 1) return {};
  const bool one_port = kind == CollectiveKind::gather || kind == CollectiveKind::scatter;
  const double between = work.pairs ? r.between * shape.pairs_share : r.between;
  const double steps = work.pairs ? 1 : work.turns * (shape.nodes - 1);
  return {
      work.between_bytes / (one_port ? r.port : between),
      steps * (r.library->ring_network_s[0] + shape.inter_latency_s) + wide_area_s(kind, algorithm, shape)};
}

// Its latency grows with the logarithm; an all-reduce's bytes go through it whole.
Stage tree_between_nodes(CollectiveKind kind, const Work& work, const GroupShape& shape, const Rates& r) {
  const double nodes = shape.nodes;
  const double whole = kind == CollectiveKind::all_reduce ? nodes / (nodes - 1) : 1;
  return {whole * work.between_bytes / r.between,
          work.turns * std::ceil(std::log2(nodes)) * (r.library->tree_network_s[0] + shape.inter_latency_s) +
              wide_area_s(kind, Algorithm::tree, shape)};
}

CollectivePlan plan_of(Algorithm algorithm, double latency_s, double moving_s, double bytes,
                       double nominal_rate, double per_edge) {
  CollectivePlan plan;
  plan.algorithm = algorithm;
  plan.protocol = Protocol::simple;
  plan.latency_s = latency_s;
  plan.wire_bytes_per_edge = per_edge;
  plan.bandwidth_bytes_per_s = bytes > 0 && moving_s > 0 ? bytes / moving_s : nominal_rate;
  return plan;
}

Algorithm algorithm_of(CollectiveKind kind, const Work& work) {
  if (!work.pairs) return Algorithm::ring;
  return kind == CollectiveKind::all_to_all ? Algorithm::pairwise : Algorithm::direct;
}

}  // namespace

CollectivePlan hierarchical_collective(CollectiveKind kind, double bytes, const GroupShape& shape,
                                       const Cluster& cluster, const Algorithm* forced) {
  const Rates r = rates_of(shape, cluster);
  const Work work = work_of(kind, bytes, shape);
  const Algorithm algorithm = algorithm_of(kind, work);
  if (forced != nullptr && *forced != algorithm)
    throw UserError("algorithm '" + std::string(name_of(*forced)) + "' is none of library '" +
                        std::string(name_of(r.library->library)) + "' for such a collective",
                    "'" + std::string(name_of(algorithm)) + "' or auto");
  const Stage in = inside_nodes(work, shape, r);
  const double launch = work.pairs ? r.link->p2p_s : r.link->base_s;
  const auto together = [&](const Stage& out) {
    const double moving =
        r.library->pipelined ? std::max(in.moving_s, out.moving_s) : in.moving_s + out.moving_s;
    return Stage{with_pipeline_fill(moving, r.link->ramp_s), launch + in.latency_s + out.latency_s};
  };
  Stage all = together(ring_between_nodes(kind, algorithm, work, shape, r));
  if (shape.nodes > 1 && !work.pairs) {
    const Stage tree = together(tree_between_nodes(kind, work, shape, r));
    if (tree.moving_s + tree.latency_s < all.moving_s + all.latency_s) all = tree;
  }
  const double n = shape.ranks;
  const bool chain = kind == CollectiveKind::broadcast || kind == CollectiveKind::reduce;
  const double per_edge = work.pairs ? 1 / n : chain ? 1 : work.turns * (n - 1) / n;
  return plan_of(algorithm, all.latency_s, all.moving_s, bytes, r.inside > 0 ? r.inside : r.between,
                 per_edge);
}

CollectivePlan hierarchical_transfer(double bytes, const GroupShape& shape, const Cluster& cluster) {
  const Rates r = rates_of(shape, cluster);
  const bool inside = shape.nodes == 1;
  const double rate = inside ? shape.message_bandwidth_bytes_per_s() * r.link->p2p_efficiency : r.port;
  const double step = inside ? step_inside(shape, r)
                             : r.library->ring_network_s[0] + shape.inter_latency_s +
                                   wide_area_s(CollectiveKind::all_to_all, Algorithm::direct, shape);
  return plan_of(Algorithm::direct, r.link->p2p_s + step, with_pipeline_fill(bytes / rate, r.link->ramp_s),
                 bytes, rate, 1);
}

}  // namespace orrery
