#include "program/mpi_model.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/error.h"

namespace orrery {
namespace {

// One message between neighbours, and one byte of it, as the busiest rank of the group feels them.
struct Links {
  double latency_s = 0;
  double seconds_per_byte = 0;         // while every rank sends to the next
  double pair_seconds_per_byte = 0;    // one message on an idle machine
  double reduce_seconds_per_byte = 0;  // two buffers into one
  double overhead_s = 0;
};

// Ranks beyond the cores take turns on them, in copying as in reducing.
double crowding(const GroupShape& shape) {
  return shape.cores_per_node > 0
             ? std::max(1.0, static_cast<double>(shape.ranks_per_node) / shape.cores_per_node)
             : 1.0;
}

Links links_of(const GroupShape& shape, const Cluster& cluster) {
  const CommunicationProfile& p = cluster.communication;
  Links links;
  links.overhead_s = p.collective_overhead_s;
  const double crowd = crowding(shape);
  const double rate = p.point_to_point_bytes_per_s > 0
                          ? p.point_to_point_bytes_per_s
                          : shape.intra_bandwidth_bytes_per_s * p.intra_efficiency;
  if (shape.ranks_per_node > 1 && rate > 0) {
    links.latency_s = p.point_to_point_latency_s > 0 ? p.point_to_point_latency_s : shape.intra_latency_s;
    links.latency_s *= crowd;
    links.pair_seconds_per_byte = 1 / rate;
    // Shared memory is copied in by the sender's core and out by the receiver's: a rank that does both at
    // once does each at half the rate.
    links.seconds_per_byte = 2 / rate * crowd;
  }
  if (shape.nodes > 1) {
    const double latency = p.network_latency_s > 0 ? p.network_latency_s : shape.inter_latency_s;
    const double network = shape.inter_bandwidth_bytes_per_s * p.network_efficiency;
    ORRERY_CHECK(network > 0, "nodes without a network between them");
    links.latency_s = std::max(links.latency_s, std::max(latency, shape.inter_latency_s));
    links.seconds_per_byte = std::max(links.seconds_per_byte, 1 / network);
    links.pair_seconds_per_byte = std::max(links.pair_seconds_per_byte, 1 / network);
  }
  links.reduce_seconds_per_byte = p.reduce_bytes_per_s > 0 ? crowd / p.reduce_bytes_per_s : 0;
  return links;
}

struct Candidate {
  Algorithm algorithm = Algorithm::ring;
  double steps = 0;          // messages one after another
  double link_bytes = 0;     // that the busiest rank sends, one after another
  double reduced_bytes = 0;  // that it reduces
  double wire_per_edge = 0;  // per byte of the collective
};

double log2_up(double n) {
  return std::ceil(std::log2(n));
}

std::vector<Candidate> candidates_of(CollectiveKind kind, double bytes, double n) {
  const double part = bytes / n;
  const double rounds = log2_up(n);
  const bool power_of_two = std::exp2(rounds) == n;
  const double extra = power_of_two ? 0 : 2;  // fold the odd ranks in, and out again
  switch (kind) {
    case CollectiveKind::all_reduce: {
      const double core = power_of_two ? rounds : rounds - 1;
      return {{Algorithm::recursive_doubling, core + extra, bytes * (core + extra),
               bytes * (core + extra / 2), 1.0},
              {Algorithm::rabenseifner, 2 * core + extra, bytes * (2 * (1 - std::exp2(-core)) + extra),
               bytes * (1 - std::exp2(-core) + extra / 2), 1.0},
              {Algorithm::ring, 2 * (n - 1), 2 * (n - 1) * part, (n - 1) * part, 2 * (n - 1) / n}};
    }
    case CollectiveKind::reduce_scatter:
      return {{Algorithm::ring, n - 1, (n - 1) * part, (n - 1) * part, (n - 1) / n},
              {Algorithm::pairwise, n - 1, (n - 1) * part, (n - 1) * part, 1 / n}};
    case CollectiveKind::all_gather: {
      std::vector<Candidate> c = {{Algorithm::ring, n - 1, (n - 1) * part, 0, (n - 1) / n}};
      if (power_of_two) c.push_back({Algorithm::recursive_doubling, rounds, (n - 1) * part, 0, 1.0});
      return c;
    }
    case CollectiveKind::all_to_all:
      return {{Algorithm::pairwise, n - 1, (n - 1) * part, 0, 1 / n}};
    case CollectiveKind::broadcast:
      return {{Algorithm::binomial, rounds, rounds * bytes, 0, 1.0},
              {Algorithm::ring, rounds + n - 1, 2 * (n - 1) * part, 0, 1.0}};  // scatter, ring all-gather
    case CollectiveKind::reduce:
      return {{Algorithm::binomial, rounds, rounds * bytes, rounds * bytes, 1.0},
              {Algorithm::rabenseifner, 2 * rounds, 2 * (n - 1) * part, (n - 1) * part, 1.0}};
    case CollectiveKind::gather:
    case CollectiveKind::scatter:
      return {{Algorithm::binomial, rounds, (n - 1) * part, 0, 1.0},
              {Algorithm::direct, n - 1, (n - 1) * part, 0, 1 / n}};
  }
  return {};
}

CollectivePlan plan_of(Algorithm algorithm, double bytes, double latency_s, double moving_s, double edge,
                       double idle_rate, const Cluster& cluster) {
  CollectivePlan plan;
  plan.algorithm = algorithm;
  plan.protocol = cluster.communication.eager_bytes > 0 && bytes <= cluster.communication.eager_bytes
                      ? Protocol::mpi_eager
                      : Protocol::mpi_rendezvous;
  plan.latency_s = latency_s;
  plan.bandwidth_bytes_per_s = bytes > 0 && moving_s > 0 ? bytes / moving_s : idle_rate;
  plan.wire_bytes_per_edge = edge;
  return plan;
}

}  // namespace

CollectivePlan mpi_collective(CollectiveKind kind, double bytes, const GroupShape& shape,
                              const Cluster& cluster, const Algorithm* forced) {
  const Links links = links_of(shape, cluster);
  std::optional<CollectivePlan> best;
  for (const Candidate& c : candidates_of(kind, bytes, shape.ranks)) {
    if (forced != nullptr && c.algorithm != *forced) continue;
    const double latency = links.overhead_s + c.steps * links.latency_s;
    const double moving =
        c.link_bytes * links.seconds_per_byte + c.reduced_bytes * links.reduce_seconds_per_byte;
    const CollectivePlan plan = plan_of(c.algorithm, bytes, latency, moving, c.wire_per_edge,
                                        1 / std::max(links.seconds_per_byte, 1e-15), cluster);
    if (!best || plan.seconds(bytes) < best->seconds(bytes)) best = plan;
  }
  if (!best) {
    throw UserError("algorithm '" + std::string(name_of(*forced)) + "' cannot run " +
                        std::string(name_of(kind)) + " over MPI",
                    "an algorithm that MPI has for it, or auto");
  }
  return *best;
}

CollectivePlan mpi_transfer(double bytes, const GroupShape& shape, const Cluster& cluster) {
  const Links links = links_of(shape, cluster);
  return plan_of(Algorithm::direct, bytes, links.latency_s, bytes * links.pair_seconds_per_byte, 1.0,
                 1 / std::max(links.pair_seconds_per_byte, 1e-15), cluster);
}

}  // namespace orrery
