// Where the ranks of a layout sit on the machine: the shapes of rank 0's groups, the ways between pipeline
// stages, the devices that each stage runs on. Looked up once for each layout and shared by all its plans.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/random.h"
#include "planner/tables/layer_times.h"
#include "program/plan.h"
#include "program/program.h"
#include "topologies/network.h"

namespace orrery::planner {

// One kind of device at one speed.
struct DeviceKindAt {
  int profile = 0;
  double speed = 1;
  auto operator<=>(const DeviceKindAt&) const = default;
};

// Where the ranks of one stage of one replica stand.
struct Standing {
  DeviceKindAt kind;      // the slowest of their devices
  GroupShapes shapes;     // of the groups inside a layer
  std::uint64_t key = 0;  // of what the shapes say
};

// Groups of the shape that have members under the same host bridge, where all of a node's devices are in one:
// members of a node are spread evenly over their bridges.
double groups_at_bridge(const GroupShape& shape, const NodeType& node);
// What all ports of a node carry one way.
double ports_bytes_per_s(const NodeType& node, const Cluster& cluster);
// Devices of the cluster's smallest node.
int smallest_node(const Cluster& cluster);

struct Geometry {
  int id = 0;
  // Of rank 0's groups, or where a kind's groups stand differently on the nodes (unlike_groups.h), of the one
  // that takes longest: a step waits for it. Ports that several groups of a node use at once are shared
  // between them.
  GroupShapes shapes;
  // Of one rank of the first stage, every group alone on the network: nothing is faster. It is rank 0, or the
  // one whose groups take longest. The groups inside a layer only where those of every stage have the same
  // shape (around the rank that stands in its stage as that one in the first: one rank of each stage, sending
  // to one another, is what bounds look at); the data groups are the rank's own.
  GroupShapes alone;
  int rank = 0;                       // whose groups these are
  std::vector<GroupKind> data_alike;  // of the data groups, those that have that shape in every stage
  // Every stage stands on the machine as stage 0 does, moved by whole nodes: its groups have these shapes.
  bool aligned = false;
  std::vector<GroupShape> hops;  // from stage i to stage i + 1, and from the last to the first
  std::vector<GroupShape> alone_hops;
  std::vector<std::uint64_t> hop_keys;  // of both shapes of a hop: where equal, messages cost the same
  std::vector<std::vector<DeviceKindAt>> kinds;  // of the devices of each stage
  int first_stage_on_node = 1;  // ranks of the first stage on one node, where all devices are alike
  // Ranks of each stage on the first node and, where that is another, on the one in the middle of the
  // pipeline, whose stages send both ways. Only where all devices are alike.
  std::vector<std::vector<int>> on_nodes;
  std::vector<int> node_of_stage;  // of the first replica's first ranks; likewise, of pipelines
  // Where devices are different: which replicas (their dp coordinates) stand alike, stage by stage. Empty
  // where all devices are alike.
  struct Replicas {
    std::vector<Standing> stages;
    std::vector<int> members;
  };
  std::vector<Replicas> replicas;
  // The groups of ZeRO shards of the given size and of the copies of a shard; empty where not asked for.
  struct Sharded {
    GroupShape shard, replicate, shard_alone, replicate_alone;
  };
};

class Geometries {
 public:
  explicit Geometries(std::shared_ptr<const Job> job);
  Geometries(const Geometries&) = delete;

  // The choices must have passed check_plan. The reference stays valid.
  const Geometry& of(const Choices& choices);
  const Geometry::Sharded& sharded(const Choices& choices, const Geometry& geometry);
  // One kind of device everywhere, nothing degraded.
  bool uniform() const { return uniform_; }

 private:
  GroupShape shape_of(const std::vector<int>& ranks);
  // `at_once`: groups of a node at work at the same time, `all_at_once`: of the cluster; 0: all of them.
  GroupShape with_shared_ports(GroupShape shape, int at_once = 0, int all_at_once = 0) const;
  static int stage_stride(const Choices& choices);
  bool nodes_alike() const;
  bool aligned(const Choices& choices) const;
  bool tensor_everywhere_alike(const Choices& choices, int ranks) const;
  double seconds_of(GroupKind kind, const GroupShape& shape) const;
  // `ranks`: whose groups may be unlike (unlike_groups.h).
  GroupShape slowest_shape(const Plan& plan, GroupKind kind, const std::vector<int>& ranks);
  GroupShape unhindered(GroupShape shape);
  // Whether the groups around the ranks that stand in their stages as a group's do in the first have the
  // shape of that. Moved by whole nodes they have: the different moves within a node are looked at.
  bool same_in_all_stages(const Choices& choices, const Group& group, const GroupShape& shape);
  void fill_alone(const Plan& plan, const std::vector<int>& ranks, Geometry& geometry);
  void fill(const Choices& choices, Geometry& geometry);
  void fill_replicas(const Plan& plan, Geometry& geometry);

  std::shared_ptr<const Job> job_;
  Network network_;
  bool uniform_ = true;
  std::deque<Geometry> all_;
  std::unordered_map<std::uint64_t, int> index_;         // of layouts
  std::unordered_map<std::uint64_t, GroupShape> known_;  // of lists of devices
  std::unordered_map<std::uint64_t, Geometry::Sharded> sharded_;
  std::uint64_t last_key_ = 0;
  const Geometry* last_ = nullptr;
};

// A running 64-bit hash: different inputs differ but for a chance of 2^-64 a pair.
constexpr std::uint64_t mixed(std::uint64_t seed, std::uint64_t value) {
  return splitmix64((seed * 0xD1342543DE82EF95ULL + kSplitmix64Step) ^ value);
}

}  // namespace orrery::planner
