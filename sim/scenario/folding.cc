#include "sim/scenario/folding.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>
#include <unordered_map>

#include "base/random.h"
#include "program/forms.h"
#include "program/placement.h"
#include "sim/network/collective_edges.h"
#include "sim/scenario/counterparts.h"
#include "topologies/network.h"

namespace orrery::sim {
namespace {

// Colours are 64-bit hashes: equal surroundings have equal colours, different ones differ but for a chance of
// 2^-64 a pair. Sums of mixed colours stand for multisets.
using Colour = std::uint64_t;

constexpr Colour mix(Colour z) {
  return splitmix64(z + kSplitmix64Step);
}
constexpr Colour mix(Colour a, Colour b) {
  return mix(mix(a) ^ b);
}
Colour mix(Colour a, double b) {
  return mix(a, std::bit_cast<Colour>(b));
}

// Ranks that communicate, and what lies between them.
struct Ties {
  GroupKind kind = GroupKind::world;
  std::vector<int> ranks;
  Colour links = 0;
  bool ordered = false;  // a pair of which the first sends to the second
};

class Refinement {
 public:
  explicit Refinement(const Plan& plan)
      : plan_(plan), cluster_(plan.job->cluster), network_(cluster_), world_(plan.choices.world()) {
    places_.reserve(static_cast<std::size_t>(world_));
    for (int rank = 0; rank < world_; ++rank) {
      devices_.push_back(device_of(plan_, rank));
      const DevicePlace place = cluster_.place(devices_.back());
      places_.push_back(place);
      const NodeType& type = cluster_.groups[static_cast<std::size_t>(place.group)].node;
      ports_.push_back(
          type.nic.of_device.empty() ? 0 : type.nic.of_device[static_cast<std::size_t>(place.local)]);
    }
  }

  std::vector<Colour> run() {
    std::vector<Colour> colours = initial();
    add_ties();
    std::size_t distinct = count(colours);
    while (true) {
      colours = refined(colours);
      const std::size_t now = count(colours);
      if (now == distinct) return colours;
      distinct = now;
    }
  }

 private:
  std::vector<Colour> initial() const {
    const Choices& choices = plan_.choices;
    std::vector<Colour> colours;
    for (int rank = 0; rank < world_; ++rank) {
      const auto at = static_cast<std::size_t>(rank);
      const Coordinates c = coordinates_of(plan_, rank);
      Colour colour = mix(static_cast<Colour>(c.pp), static_cast<Colour>(places_[at].group));
      colour = mix(colour, cluster_.device_speed(devices_[at]));
      if (!choices.replica_batches.empty())
        colour = mix(colour, static_cast<Colour>(choices.replica_batches[static_cast<std::size_t>(c.dp)]));
      colours.push_back(colour);
    }
    return colours;
  }

  // What a flow between the two devices meets on its way.
  Colour links_between(int source, int destination) {
    const auto [at, added] = routes_.try_emplace((static_cast<std::uint64_t>(source) << 32) |
                                                 static_cast<std::uint64_t>(destination));
    if (!added) return at->second;
    const Route route = network_.route(source, destination);
    Colour colour = mix(static_cast<Colour>(route.path));
    for (const Link& link : route.links) {
      // The uplinks of a tree without oversubscription carry all that the ports below them can send.
      if (link.kind == LinkKind::leaf_uplink && cluster_.fabric.oversubscription <= 1) continue;
      colour += mix(static_cast<Colour>(link.kind), link.bandwidth_bytes_per_s);
    }
    return at->second = colour;
  }

  void add_group(const Group& group, std::vector<bool>& seen) {
    for (const int rank : group.ranks) seen[static_cast<std::size_t>(rank)] = true;
    if (group.ranks.size() <= 1) return;
    std::vector<int> devices;
    for (const int rank : group.ranks) devices.push_back(devices_[static_cast<std::size_t>(rank)]);
    Ties ties{group.kind, group.ranks, 0, false};
    for (const Edge& edge : collective_edges(EdgeShape::ring, 0, devices, cluster_))
      ties.links += mix(links_between(devices[static_cast<std::size_t>(edge.source)],
                                      devices[static_cast<std::size_t>(edge.destination)]),
                        edge.share);
    ties_.push_back(std::move(ties));
  }

  void add_groups(GroupKind kind) {
    std::vector<bool> seen(static_cast<std::size_t>(world_), false);
    for (int rank = 0; rank < world_; ++rank)
      if (!seen[static_cast<std::size_t>(rank)]) add_group(group_of(kind, plan_, rank), seen);
  }

  // Rank by rank who sends to whom: a group that looks the same from either end is not the same to its
  // messages.
  void add_ring(GroupKind kind, int Coordinates::*along, int ranks) {
    if (ranks <= 1) return;
    for (int rank = 0; rank < world_; ++rank) {
      Coordinates at = coordinates_of(plan_, rank);
      at.*along = (at.*along + 1) % ranks;
      const int next = rank_of(plan_, at);
      const int source = devices_[static_cast<std::size_t>(rank)];
      const int destination = devices_[static_cast<std::size_t>(next)];
      ties_.push_back({kind, {rank, next}, links_between(source, destination), true});
    }
  }

  void add_ties() {
    for (const GroupRule& rule : group_rules()) {
      // All are in one world, and stages talk pairwise.
      if (rule.kind == GroupKind::world || rule.kind == GroupKind::pipeline) continue;
      if (rule.used(plan_)) add_groups(rule.kind);
    }
    add_ring(GroupKind::pipeline, &Coordinates::pp, plan_.choices.pp);
    add_ring(GroupKind::context, &Coordinates::cp, plan_.choices.cp);
  }

  std::vector<Colour> refined(const std::vector<Colour>& colours) const {
    std::vector<Colour> sum(colours.size(), 0);
    for (const Ties& ties : ties_) {
      Colour members = 0;
      for (std::size_t i = 0; i < ties.ranks.size(); ++i) {
        const Colour colour = colours[static_cast<std::size_t>(ties.ranks[i])];
        members += ties.ordered ? mix(colour, static_cast<Colour>(i)) : mix(colour);
      }
      const Colour tie = mix(mix(static_cast<Colour>(ties.kind), ties.links), members);
      for (std::size_t i = 0; i < ties.ranks.size(); ++i)
        sum[static_cast<std::size_t>(ties.ranks[i])] +=
            mix(tie, static_cast<Colour>(ties.ordered ? i + 1 : 0));
    }
    // Who else is on the node, and at the same network port.
    std::unordered_map<int, Colour> node;
    std::unordered_map<std::int64_t, Colour> port;
    const auto port_key = [&](std::size_t at) {
      return (static_cast<std::int64_t>(places_[at].node) << 16) | ports_[at];
    };
    for (std::size_t at = 0; at < colours.size(); ++at) {
      node[places_[at].node] += mix(colours[at]);
      port[port_key(at)] += mix(colours[at]);
    }
    std::vector<Colour> result;
    result.reserve(colours.size());
    for (std::size_t at = 0; at < colours.size(); ++at)
      result.push_back(mix(mix(mix(colours[at], sum[at]), node[places_[at].node]), port[port_key(at)]));
    return result;
  }

  static std::size_t count(std::vector<Colour> colours) {
    std::sort(colours.begin(), colours.end());
    return static_cast<std::size_t>(std::unique(colours.begin(), colours.end()) - colours.begin());
  }

  const Plan& plan_;
  const Cluster& cluster_;
  Network network_;
  int world_;
  std::vector<int> devices_;
  std::vector<DevicePlace> places_;
  std::vector<int> ports_;
  std::vector<Ties> ties_;
  std::unordered_map<std::uint64_t, Colour> routes_;  // looked up only
};

// Asynchronous workers fall out of step, which one that stands for all cannot show: so many are simulated one
// by one all the same. Beyond, what each has to do grows with the square of their number.
constexpr int kMostDrifting = 16;

bool all_equal(const std::vector<Colour>& colours) {
  return std::all_of(colours.begin(), colours.end(),
                     [&](Colour colour) { return colour == colours.front(); });
}

}  // namespace

Folding fold_ranks(const Plan& plan) {
  const bool served = plan.choices.has_servers() && plan.choices.servers == plan.choices.dp &&
                      (!plan.choices.asynchronous() || plan.choices.dp > kMostDrifting);
  // Other servers, and the device that scatters for the others, have parts of their own.
  if (plan.choices.sync != Sync::all_reduce && !served) return no_folding(plan);
  const std::vector<Colour> colours = Refinement(plan).run();
  // Where each rank is a worker and a server, who stands for all of them talks to itself.
  if (served && !(Counterparts(plan).of_whole_nodes() && all_equal(colours))) return no_folding(plan);
  Folding folding;
  std::unordered_map<Colour, int> index;
  for (std::size_t rank = 0; rank < colours.size(); ++rank) {
    const auto [at, added] = index.try_emplace(colours[rank], static_cast<int>(folding.classes.size()));
    if (added) folding.classes.push_back({static_cast<int>(rank), 0});
    ++folding.classes[static_cast<std::size_t>(at->second)].size;
    folding.class_of.push_back(at->second);
  }
  return folding;
}

Folding no_folding(const Plan& plan) {
  Folding folding;
  for (int rank = 0; rank < plan.choices.world(); ++rank) {
    folding.classes.push_back({rank, 1});
    folding.class_of.push_back(rank);
  }
  return folding;
}

}  // namespace orrery::sim
