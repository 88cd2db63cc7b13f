#include "planner/tables/geometry.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <map>
#include <set>

#include "cost/collective_cost.h"
#include "planner/tables/layer_sums.h"
#include "planner/tables/unlike_groups.h"
#include "program/forms.h"
#include "program/placement.h"

namespace orrery::planner {
namespace {

std::uint64_t layout_key(const Choices& c) {
  std::uint64_t key = mixed(0, static_cast<std::uint64_t>(c.tp) << 32 | static_cast<std::uint32_t>(c.pp));
  key = mixed(key, static_cast<std::uint64_t>(c.dp) << 32 | static_cast<std::uint32_t>(c.cp));
  key = mixed(key, static_cast<std::uint64_t>(c.ep) << 32 | static_cast<std::uint32_t>(c.etp));
  std::uint64_t order = c.sequence_parallel ? 1 : 0;
  for (const Dimension dimension : c.order) order = order * 8 + static_cast<std::uint64_t>(dimension);
  return mixed(mixed(key, order), degrees_key(c));
}

// Ranks of each stage on a node of `devices`.
std::vector<int> ranks_on_node(const Plan& plan, int node, int devices) {
  std::vector<int> ranks(static_cast<std::size_t>(plan.choices.pp), 0);
  const int end = std::min(plan.choices.world(), (node + 1) * devices);
  for (int rank = node * devices; rank < end; ++rank)
    ++ranks[static_cast<std::size_t>(coordinates_of(plan, rank).pp)];
  return ranks;
}

}  // namespace

double groups_at_bridge(const GroupShape& shape, const NodeType& node) {
  return 1.0 * node.intra.devices_per_bridge * shape.bridges / shape.ranks_per_node;
}

double ports_bytes_per_s(const NodeType& node, const Cluster& cluster) {
  return node.nic.count * node.nic.bandwidth_bytes_per_s * usable_fraction(LinkKind::nic, node, cluster);
}

int smallest_node(const Cluster& cluster) {
  int devices = cluster.groups.front().node.devices;
  for (const NodeGroup& group : cluster.groups) devices = std::min(devices, group.node.devices);
  return std::min(devices, cluster.devices());
}

Geometries::Geometries(std::shared_ptr<const Job> job)
    : job_(std::move(job)),
      network_(job_->cluster),
      uniform_(job_->cluster.groups.size() == 1 && job_->cluster.overrides.empty()) {}

GroupShape Geometries::shape_of(const std::vector<int>& ranks) {
  const int devices = job_->cluster.devices();
  std::vector<int> on;
  on.reserve(ranks.size());
  std::uint64_t key = ranks.size();
  for (const int rank : ranks) {
    on.push_back(rank % devices);
    key = mixed(key, static_cast<std::uint64_t>(on.back()));
  }
  const auto [entry, fresh] = known_.try_emplace(key);
  if (fresh) entry->second = group_shape(network_, on);
  return entry->second;
}

// Ports that the devices of a node share are shared by all groups of one kind at work at once: with ranks of
// other groups between two members of one, that many groups leave the node together.
GroupShape Geometries::with_shared_ports(GroupShape shape, int at_once, int all_at_once) const {
  const NodeType& node = job_->cluster.groups.front().node;
  // All groups at work share the way between rooms.
  if (shape.rooms > 1) {
    const double groups = all_at_once > 0 ? all_at_once : 1.0 * job_->cluster.devices() / shape.ranks;
    shape.inter_bandwidth_bytes_per_s = std::min(shape.inter_bandwidth_bytes_per_s,
                                                 job_->cluster.fabric.global_bandwidth_bytes_per_s / groups);
  }
  if (shape.bridge_bandwidth_bytes_per_s > 0) {
    const double most = groups_at_bridge(shape, node);
    const double groups = at_once > 0 ? std::min<double>(most, at_once) : most;
    const double reached = job_->runtime.communication_efficiency;
    if (groups * reached > 1) {
      shape.at_bridges = groups * reached;
      shape.bridge_bandwidth_bytes_per_s /= shape.at_bridges;
    }
  }
  const int groups_of_node = at_once > 0 ? at_once : node.devices / std::max(1, shape.ranks_per_node);
  if (shape.nodes <= 1 || groups_of_node <= 1 || shape.inter_bandwidth_bytes_per_s <= 0) return shape;
  const double all = node.nic.bandwidth_bytes_per_s * node.nic.count;
  // What a framework loses of a port beside its own messages the other groups use: a group has what it would
  // reach alone or its part of the ports, whichever is less, as where flows meet in the simulation.
  const double reached = job_->runtime.communication_efficiency;
  shape.inter_bandwidth_bytes_per_s *=
      std::min(1.0, all / (shape.inter_bandwidth_bytes_per_s * groups_of_node * reached));
  return shape;
}

// Devices between a rank and the one of the next stage at the same coordinates.
int Geometries::stage_stride(const Choices& c) {
  int stride = 1;
  for (const Dimension dimension : c.order) {
    if (dimension == Dimension::pp) break;
    stride *= dimension == Dimension::tp   ? c.tp
              : dimension == Dimension::cp ? c.cp
              : dimension == Dimension::dp ? c.dp
                                           : 1;
  }
  return stride;
}

// Beyond the smallest switch, ways between nodes differ: only where all nodes are alike from everywhere does
// a group moved by whole nodes stay as it was.
bool Geometries::nodes_alike() const {
  const FabricKind kind = job_->cluster.fabric.kind;
  return uniform_ &&
         (kind == FabricKind::star || kind == FabricKind::fat_tree || kind == FabricKind::rail_fat_tree);
}

bool Geometries::aligned(const Choices& c) const {
  if (!uniform_ || c.pp == 1) return uniform_;
  return nodes_alike() && stage_stride(c) % job_->cluster.groups.front().node.devices == 0;
}

// Whether all tensor groups, or so many neighbours of them, have rank 0's shape wherever they sit: blocks of
// a node behind one switch.
bool Geometries::tensor_everywhere_alike(const Choices& c, int ranks) const {
  const NodeType& node = job_->cluster.groups.front().node;
  return uniform_ && c.order[0] == Dimension::tp && node.devices % c.tp == 0 &&
         ((node.intra.kind == IntraKind::nvswitch && node.intra.torus.empty()) ||
          node.intra.kind == IntraKind::shared_memory || node.devices == ranks);
}

GroupShape Geometries::unhindered(GroupShape shape) {
  if (!uniform_ || job_->cluster.nodes() <= 1 || shape.nodes <= 1) return shape;
  const NodeType& node = job_->cluster.groups.front().node;
  shape.rooms = 1;
  // The least that anything on this fabric takes: between neighbours under one switch.
  shape.inter_latency_s = std::min(shape.inter_latency_s, shape_of({0, node.devices}).inter_latency_s);
  shape.inter_bandwidth_bytes_per_s =
      std::max(shape.inter_bandwidth_bytes_per_s,
               std::min(node.nic.count, shape.ranks_per_node) * node.nic.bandwidth_bytes_per_s);
  return shape;
}

bool Geometries::same_in_all_stages(const Choices& c, const Group& group, const GroupShape& shape) {
  if (aligned(c)) return true;
  if (!nodes_alike()) return false;
  const int on_node = job_->cluster.groups.front().node.devices;
  const int stride = stage_stride(c);
  const std::uint64_t key = shape_key(unhindered(shape));
  std::set<int> moves = {0};
  for (int stage = 1; stage < c.pp; ++stage) {
    if (!moves.insert(stage * stride % on_node).second) continue;
    std::vector<int> moved = group.ranks;
    for (int& rank : moved) rank += stage * stride;
    if (shape_key(unhindered(shape_of(moved))) != key) return false;
  }
  return true;
}

// Of a typical message: groups of one kind differ in how much of it leaves a node.
double Geometries::seconds_of(GroupKind kind, const GroupShape& shape) const {
  constexpr double kBytes = 64e6;
  return collective_s(kind == GroupKind::expert ? CollectiveKind::all_to_all : CollectiveKind::all_gather,
                      kBytes, shape, *job_);
}

GroupShape Geometries::slowest_shape(const Plan& plan, GroupKind kind, const std::vector<int>& ranks) {
  const Group own = group_of(kind, plan, 0);
  GroupShape slowest = with_shared_ports(shape_of(own.ranks));
  if (ranks.size() == 1) return slowest;
  const int on_node = job_->cluster.groups.front().node.devices;
  std::set<std::vector<int>> seen = {spread_over_nodes(own.ranks, on_node)};
  double most_s = seconds_of(kind, slowest);
  for (const int rank : ranks) {
    const Group group = group_of(kind, plan, rank);
    if (!seen.insert(spread_over_nodes(group.ranks, on_node)).second) continue;
    const GroupShape alone = shape_of(group.ranks);
    // As many lie across the end of a node with it as stand between two neighbours of it.
    const int most = std::max(1, on_node / alone.ranks_per_node);
    const GroupShape shape =
        with_shared_ports(alone, std::clamp(std::abs(group.ranks[1] - group.ranks[0]), 1, most));
    const double seconds = seconds_of(kind, shape);
    if (seconds <= most_s) continue;
    most_s = seconds;
    slowest = shape;
  }
  return slowest;
}

void Geometries::fill_alone(const Plan& plan, const std::vector<int>& ranks, Geometry& geometry) {
  const Choices& c = plan.choices;
  double most_s = -1;
  std::set<int> seen;
  for (const int rank : ranks) {
    Coordinates at = coordinates_of(plan, rank);
    at.pp = 0;
    const int first = rank_of(plan, at);
    if (!seen.insert(first).second) continue;
    GroupShapes alone;
    std::vector<GroupKind> data_alike;
    double seconds = 0;
    for (const GroupRule& rule : group_rules()) {
      if ((!rule.in_layers && !rule.reduces_data) || !rule.used(plan)) continue;
      const Group group = group_of(rule.kind, plan, first);
      if (group.ranks.size() <= 1) continue;
      const GroupShape shape = shape_of(group.ranks);
      const bool same = same_in_all_stages(c, group, shape);
      const bool alike =
          rule.inside_tensor && tensor_everywhere_alike(c, static_cast<int>(group.ranks.size()));
      if (rule.reduces_data && same) data_alike.push_back(group.kind);
      if (!same && !rule.reduces_data && !alike) continue;
      alone[group.kind] = unhindered(shape);
      if (rule.in_layers && ranks.size() > 1) seconds += seconds_of(rule.kind, alone[group.kind]);
    }
    if (seconds <= most_s) continue;
    most_s = seconds;
    geometry.rank = first;
    geometry.alone = std::move(alone);
    geometry.data_alike = std::move(data_alike);
  }
}

void Geometries::fill(const Choices& c, Geometry& geometry) {
  const Plan plan{job_, c};
  geometry.aligned = aligned(c);
  const int on_node = job_->cluster.groups.front().node.devices;
  const std::vector<int> ranks = uniform_ ? ranks_unlike(c, on_node) : std::vector<int>{0};
  for (const GroupRule& rule : group_rules()) {
    if ((!rule.in_layers && !rule.reduces_data) || !rule.used(plan)) continue;
    const GroupShape shape = slowest_shape(plan, rule.kind, ranks);
    if (shape.ranks > 1) geometry.shapes[rule.kind] = shape;
  }
  fill_alone(plan, ranks, geometry);
  // Stages send and sum their ties at times of their own: only a stage's own ranks of a node meet at its
  // ports.
  std::vector<int> on_first_node = ranks_on_node(plan, 0, on_node);
  const int of_stage = on_first_node.front();
  if (uniform_) {
    geometry.first_stage_on_node = of_stage;
    geometry.on_nodes.push_back(std::move(on_first_node));
    Coordinates middle;
    middle.pp = c.pp / 2;
    const int middle_node = rank_of(plan, middle) / on_node;
    if (middle_node > 0) geometry.on_nodes.push_back(ranks_on_node(plan, middle_node, on_node));
  }
  Coordinates at = coordinates_of(plan, geometry.rank);
  for (int stage = 0; stage < c.pp && c.pp > 1; ++stage) {
    at.pp = stage;
    const int from = rank_of(plan, at);
    if (uniform_) geometry.node_of_stage.push_back(from / on_node);
    at.pp = (stage + 1) % c.pp;
    geometry.alone_hops.push_back(shape_of({from, rank_of(plan, at)}));
    geometry.hops.push_back(with_shared_ports(geometry.alone_hops.back(), of_stage, c.world() / c.pp));
    geometry.hop_keys.push_back(
        mixed(shape_key(geometry.hops.back()), shape_key(geometry.alone_hops.back())));
  }
  if (c.pp > 1) geometry.shapes[GroupKind::embedding] = geometry.hops.back();
  geometry.kinds.resize(static_cast<std::size_t>(c.pp));
  if (uniform_) {
    for (auto& kinds : geometry.kinds) kinds.push_back({job_->cluster.groups.front().node.profile, 1.0});
    return;
  }
  std::vector<std::set<DeviceKindAt>> seen(static_cast<std::size_t>(c.pp));
  for (int rank = 0; rank < c.world(); ++rank) {
    const int device = device_of(plan, rank);
    const int profile = job_->cluster.groups[job_->cluster.place(device).group].node.profile;
    seen[coordinates_of(plan, rank).pp].insert({profile, job_->cluster.device_speed(device)});
  }
  for (int stage = 0; stage < c.pp; ++stage)
    geometry.kinds[stage].assign(seen[stage].begin(), seen[stage].end());
  fill_replicas(plan, geometry);
}

void Geometries::fill_replicas(const Plan& plan, Geometry& geometry) {
  const Choices& c = plan.choices;
  const auto kind_of = [&](int rank) {
    const int device = device_of(plan, rank);
    return DeviceKindAt{job_->cluster.groups[job_->cluster.place(device).group].node.profile,
                        job_->cluster.device_speed(device)};
  };
  const auto rate_of = [&](const DeviceKindAt& kind) {
    return job_->cluster.profiles[kind.profile].peak(job_->training.precision) * kind.speed;
  };
  std::map<std::vector<std::uint64_t>, std::size_t> known;
  for (int replica = 0; replica < c.dp; ++replica) {
    std::vector<Standing> stages;
    std::vector<std::uint64_t> key;
    for (int stage = 0; stage < c.pp; ++stage) {
      Coordinates at;
      at.pp = stage;
      at.dp = replica;
      const int first = rank_of(plan, at);
      Standing standing;
      standing.kind = kind_of(first);
      for (at.cp = 0; at.cp < c.cp; ++at.cp) {
        for (at.tp = 0; at.tp < c.tp; ++at.tp) {
          const DeviceKindAt kind = kind_of(rank_of(plan, at));
          if (rate_of(kind) < rate_of(standing.kind)) standing.kind = kind;
        }
      }
      for (const GroupRule& rule : group_rules()) {
        if (!rule.in_layers || !rule.used(plan)) continue;
        const Group group = group_of(rule.kind, plan, first);
        if (group.ranks.size() > 1) standing.shapes[group.kind] = with_shared_ports(shape_of(group.ranks));
      }
      standing.key = inner_shapes_key(standing.shapes);
      key.push_back(standing.key);
      key.push_back(static_cast<std::uint64_t>(standing.kind.profile));
      key.push_back(std::bit_cast<std::uint64_t>(standing.kind.speed));
      stages.push_back(std::move(standing));
    }
    const auto [entry, fresh] = known.try_emplace(std::move(key), geometry.replicas.size());
    if (fresh) geometry.replicas.push_back({std::move(stages), {}});
    geometry.replicas[entry->second].members.push_back(replica);
  }
}

const Geometry& Geometries::of(const Choices& c) {
  const std::uint64_t key = layout_key(c);
  if (last_ != nullptr && last_key_ == key) return *last_;
  const auto [entry, fresh] = index_.try_emplace(key, static_cast<int>(all_.size()));
  if (fresh) {
    all_.emplace_back();
    all_.back().id = entry->second;
    fill(c, all_.back());
  }
  last_key_ = key;
  last_ = &all_[entry->second];
  return *last_;
}

const Geometry::Sharded& Geometries::sharded(const Choices& c, const Geometry& geometry) {
  const std::uint64_t key =
      mixed(static_cast<std::uint64_t>(geometry.id), static_cast<std::uint64_t>(c.shard_group));
  const auto [entry, fresh] = sharded_.try_emplace(key);
  if (fresh) {
    const Plan plan{job_, c};
    Geometry::Sharded& shapes = entry->second;
    shapes.shard_alone = shape_of(group_of(GroupKind::shard, plan, geometry.rank).ranks);
    shapes.replicate_alone = shape_of(group_of(GroupKind::replicate, plan, geometry.rank).ranks);
    shapes.shard = with_shared_ports(shapes.shard_alone);
    shapes.replicate = with_shared_ports(shapes.replicate_alone);
  }
  return entry->second;
}

}  // namespace orrery::planner
