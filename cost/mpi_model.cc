#include "cost/mpi_model.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "base/error.h"

namespace orrery {
namespace {

// Measured times of messages by size: straight lines between the points, and beyond the last at its rate.
// Never falling, whatever noise a measurement had.
double interpolated(const std::vector<MessageTime>& points, double MessageTime::*time, double bytes) {
  double before_bytes = 0;
  double before_s = points.front().*time;  // smaller messages take as long as the smallest measured
  for (const MessageTime& point : points) {
    const double now_s = std::max(before_s, point.*time);
    if (bytes <= point.bytes) {
      const double share = (bytes - before_bytes) / (point.bytes - before_bytes);
      return before_s + share * (now_s - before_s);
    }
    before_bytes = point.bytes;
    before_s = now_s;
  }
  return before_s * bytes / before_bytes;
}

// What one message takes on this group's links: inside a node by the measured times (or latency and rate),
// between nodes by the network's latency and the node's share of its port.
class Messages {
 public:
  Messages(const GroupShape& shape, const Cluster& cluster)
      : shape_(shape), cluster_(cluster), profile_(cluster.communication) {
    // Ranks beyond the cores take turns on them, in copying as in reducing.
    if (shape.cores_per_node > 0) {
      crowd_ = std::max(1.0, static_cast<double>(shape.ranks_per_node) / shape.cores_per_node);
    }
    rate_ = profile_.point_to_point_bytes_per_s > 0 ? profile_.point_to_point_bytes_per_s
                                                    : shape.intra_bandwidth_bytes_per_s;
    network_latency_s_ = std::max(profile_.network_latency_s, shape.inter_latency_s);
    ORRERY_CHECK(shape.nodes == 1 || shape.inter_bandwidth_bytes_per_s > 0, "nodes without a network");
  }

  double crowd() const { return crowd_; }

  // Every rank sends `bytes` to the next and receives as much; `leaving` of a node's ranks send to another
  // node.
  double exchange(double bytes, double leaving) const {
    double seconds = 0;
    if (shape_.ranks_per_node > 1) {
      seconds =
          crowd_ * (profile_.message_times.empty()
                        ? profile_.point_to_point_latency_s + bytes / (rate_ * profile_.intra_efficiency)
                        : interpolated(profile_.message_times, &MessageTime::exchange_s, bytes));
    }
    const double both_ways = std::min(profile_.network_exchange_efficiency, profile_.network_efficiency);
    return shape_.nodes > 1 ? std::max(seconds, across(bytes, leaving, both_ways)) : seconds;
  }

  // One message, the other ranks idle.
  double one_way(double bytes) const {
    if (shape_.nodes > 1) return across(bytes, 1, profile_.network_efficiency);
    return profile_.message_times.empty()
               ? profile_.point_to_point_latency_s + bytes / rate_
               : interpolated(profile_.message_times, &MessageTime::one_way_s, bytes);
  }

  double reduce(double bytes) const {
    return profile_.reduce_bytes_per_s > 0 ? crowd_ * bytes / profile_.reduce_bytes_per_s : 0;
  }

 private:
  double across(double bytes, double leaving, double efficiency) const {
    return network_crossings(bytes, cluster_) * network_latency_s_ +
           leaving * bytes / (shape_.inter_bandwidth_bytes_per_s * efficiency);
  }

  const GroupShape& shape_;
  const Cluster& cluster_;
  const CommunicationProfile& profile_;
  double crowd_ = 1;
  double rate_ = 0;
  double network_latency_s_ = 0;
};

struct Candidate {
  Algorithm algorithm = Algorithm::ring;
  double rounds = 0;         // one after another
  double message_bytes = 0;  // of each
  double leaving = 1;        // messages of a round that leave a node at once
  double reduced_bytes = 0;  // by one rank, over all rounds
  double wire_per_edge = 0;  // per byte of the collective
  bool one_way = false;      // a round has one message and no answer
};

std::vector<Candidate> candidates_of(CollectiveKind kind, double bytes, const GroupShape& shape) {
  const double n = shape.ranks;
  const double local = shape.ranks_per_node;
  const double part = bytes / n;
  const double levels = std::ceil(std::log2(n));
  switch (kind) {
    case CollectiveKind::all_reduce: {
      // Ranks beyond a power of two fold into a neighbour first and hear the result last.
      const double power = std::exp2(std::floor(std::log2(n)));
      const double core = std::log2(power);
      const double extra = power == n ? 0 : 1;
      return {{Algorithm::recursive_doubling, core + 2 * extra, bytes, local, (core + extra) * bytes,
               core + 2 * extra},
              {Algorithm::ring, 2 * (n - 1), part, 1, (n - 1) * part, 2 * (n - 1) / n}};
    }
    case CollectiveKind::reduce_scatter:
      return {{Algorithm::ring, n - 1, part, 1, (n - 1) * part, (n - 1) / n}};
    case CollectiveKind::all_gather:
      return {{Algorithm::ring, n - 1, part, 1, 0, (n - 1) / n}};
    case CollectiveKind::all_to_all:
      return {{Algorithm::pairwise, n - 1, part, local, 0, 1 / n}};
    case CollectiveKind::broadcast:
      return {{Algorithm::binomial, levels, bytes, 1, 0, 1.0, true}};
    case CollectiveKind::reduce:
      return {{Algorithm::binomial, levels, bytes, 1, levels * bytes, 1.0, true}};
    case CollectiveKind::gather:
    case CollectiveKind::scatter:
      return {{Algorithm::direct, n - 1, part, 1, 0, 1 / n, true}};
  }
  return {};
}

CollectivePlan plan_of(Algorithm algorithm, double bytes, double message_bytes, double latency_s,
                       double seconds, double wire_per_edge, double eager_bytes) {
  CollectivePlan plan;
  plan.algorithm = algorithm;
  plan.protocol = message_bytes <= eager_bytes ? Protocol::mpi_eager : Protocol::mpi_rendezvous;
  plan.latency_s = latency_s;
  const double moving = seconds - latency_s;
  // Nothing to move: any positive rate says so.
  plan.bandwidth_bytes_per_s = bytes > 0 && moving > 0 ? bytes / moving : 1e18;
  plan.wire_bytes_per_edge = wire_per_edge;
  return plan;
}

}  // namespace

double network_crossings(double bytes, const Cluster& cluster) {
  const double eager = cluster.communication.network_eager_bytes;
  return cluster.fabric.transport != Transport::tcp && eager > 0 && bytes > eager ? 3 : 1;
}

CollectivePlan mpi_collective(CollectiveKind kind, double bytes, const GroupShape& shape,
                              const Cluster& cluster, const Algorithm* forced) {
  const CommunicationProfile& profile = cluster.communication;
  const Messages messages(shape, cluster);
  const auto round_s = [&](const Candidate& c, double message_bytes) {
    return c.one_way ? messages.one_way(message_bytes) : messages.exchange(message_bytes, c.leaving);
  };
  const double eager = shape.nodes > 1 ? profile.network_eager_bytes : profile.eager_bytes;
  std::optional<CollectivePlan> best;
  for (const Candidate& c : candidates_of(kind, bytes, shape)) {
    if (forced != nullptr && c.algorithm != *forced) continue;
    const double wide_s = network_crossings(c.message_bytes, cluster) * wide_area_s(kind, c.algorithm, shape);
    const double latency = profile.collective_overhead_s + wide_s + c.rounds * round_s(c, 0);
    const double seconds = profile.collective_overhead_s + wide_s + c.rounds * round_s(c, c.message_bytes) +
                           messages.reduce(c.reduced_bytes);
    const CollectivePlan plan =
        plan_of(c.algorithm, bytes, c.message_bytes, latency, seconds, c.wire_per_edge, eager);
    if (!best || plan.seconds(bytes) < best->seconds(bytes)) best = plan;
  }
  if (!best) {
    throw UserError("algorithm '" + std::string(name_of(*forced)) + "' cannot run " +
                        std::string(name_of(kind)) + " over MPI",
                    "one that the executor has for it (docs/collectives.md), or auto");
  }
  return *best;
}

CollectivePlan mpi_transfer(double bytes, const GroupShape& shape, const Cluster& cluster) {
  const Messages messages(shape, cluster);
  const double eager =
      shape.nodes > 1 ? cluster.communication.network_eager_bytes : cluster.communication.eager_bytes;
  const double wide_s =
      network_crossings(bytes, cluster) * wide_area_s(CollectiveKind::all_to_all, Algorithm::direct, shape);
  return plan_of(Algorithm::direct, bytes, bytes, wide_s + messages.one_way(0),
                 wide_s + messages.one_way(bytes), 1.0, eager);
}

}  // namespace orrery
