// A checked description of a machine: nodes of devices, the links inside them and the fabric between them.
// Devices are numbered 0..devices()-1, node by node in the order of the groups. Rates are bytes a second of
// one direction, latencies seconds; proto/cluster.proto says the same of the files.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "topologies/device_profile.h"

namespace orrery::proto {
class Cluster;
}

namespace orrery {

// What a description may hold: more is a mistyped figure.
constexpr int kMaxNodes = 4'000'000;
constexpr int kMaxDevices = 16'000'000;
constexpr int kMaxDevicesPerNode = 16'384;

enum class IntraKind {
  nvswitch,       // all to all at the full rate; with `torus`: whoever exchanges uses the links between them
  nvlink_mesh,    // direct links, not between all pairs (DGX-1)
  pcie,           // through host bridges
  shared_memory,  // processes of one host
};

struct IntraNode {
  IntraKind kind = IntraKind::nvswitch;
  double bandwidth_bytes_per_s = 0;  // one device, one direction, all its links together
  double latency_s = 0;
  // nvlink_mesh: devices x devices, row-major, counts of links between two; each carries
  // bandwidth_bytes_per_s / the largest sum of a row.
  std::vector<int> mesh_links = {};
  // nvswitch: the devices stand in a torus of these dimensions (the last one fastest). Routes say nothing of
  // its hops; what a group of devices gets of its links, cost/group_shape.h says.
  std::vector<int> torus = {};
  int devices_per_bridge = 0;  // pcie: bridges meet in the CPU interconnect
  // pcie: of one bridge into the CPU interconnect, each direction. shared_memory: of all ranks of the host
  // together; 0: every core at the full rate at once.
  double bridge_bandwidth_bytes_per_s = 0;
  bool in_network_reduction = false;  // switches add what passes (NVLink SHARP)
};

struct Nic {
  int count = 0;                     // ports of a node
  double bandwidth_bytes_per_s = 0;  // one port, one direction
  double latency_s = 0;
  std::vector<int> of_device = {};        // port of each local device
  bool direct = false;                    // GPUDirect RDMA: not staged through the host's memory
  double pcie_bandwidth_bytes_per_s = 0;  // between a device and its port
};

struct NodeType {
  std::string name;
  int profile = 0;  // index in Cluster::profiles
  int devices = 0;  // of one node
  IntraNode intra;
  Nic nic;
  int shared_cores = 0;  // > 0: devices are ranks that share this many processor cores
  double host_memory_bytes = 0;
  double storage_read_bytes_per_s = 0;  // of one node; 0: not known
  double storage_write_bytes_per_s = 0;
  double price_usd_per_device_hour = 0;   // 0: the device profile's
  double host_power_w = 0;                // of a node without its devices
  std::vector<std::string> hosts;         // names to launch on; empty: unknown
  std::shared_ptr<const NodeType> whole;  // where only some of its devices are asked for: with all of them
};

struct NodeGroup {
  NodeType node;
  int count = 0;
};

enum class FabricKind {
  star,           // one switch
  fat_tree,       // leaves of nodes_per_leaf nodes under a spine
  rail_fat_tree,  // port i of every node on leaf i of its pod of nodes_per_leaf nodes
  torus,
  dragonfly,
};
enum class Transport { infiniband, roce, tcp, host };  // host: one machine only

struct Fabric {
  FabricKind kind = FabricKind::star;
  Transport transport = Transport::infiniband;
  double switch_latency_s = 0;  // of each switch crossed
  int nodes_per_leaf = 0;
  double oversubscription = 1;  // 1: full bisection; 4: a quarter of it
  // torus and dragonfly: of a local link (0: as a node's ports together). star: of the switch itself, shared
  // by all that crosses it (0: non-blocking).
  double link_bandwidth_bytes_per_s = 0;
  std::vector<int> torus;  // nodes of each dimension
  int groups = 0;          // dragonfly
  int routers = 0;         // of a group
  int nodes_per_router = 0;
  double global_bandwidth_bytes_per_s = 0;  // dragonfly: between two groups
  double global_latency_s = 0;              // of that way; above 0 the groups are rooms or regions
  // Trees: each flow is hashed onto one uplink of its leaf (ECMP); a port spreads what it sends to one
  // neighbour over so many. Else uplinks are one capacity.
  bool hashes_flows = false;
  int flows_per_port = 2;
  int nodes_of_group() const { return routers * nodes_per_router; }
  bool has_rooms() const { return kind == FabricKind::dragonfly && global_latency_s > 0; }
};

// Whose collectives. unknown: of devices whose vendor and generation no file of topologies/links names.
enum class CommunicationLibrary { nccl, mpi, rccl, hccl, gaudi_hccl, oneccl, xla, neuron, unknown };
std::string_view name_of(CommunicationLibrary library);
std::optional<CommunicationLibrary> library_from_name(std::string_view name);

struct MessageTime {
  double bytes = 0;
  double one_way_s = 0;   // half of a ping-pong of two ranks, the others idle
  double exchange_s = 0;  // every rank sends to the next and receives as much from the one before
};

// How messages and collectives behave over the links. An MPI library is described by all of it, as
// `calibrate` measures it; the others by network_efficiency and, where calibrated, intra_efficiency: the rest
// is their model's (topologies/link_class.h).
struct CommunicationProfile {
  CommunicationLibrary library = CommunicationLibrary::nccl;
  std::string source;
  bool calibrated = false;                 // measured on this machine
  double point_to_point_latency_s = 0;     // a small message inside a node
  double point_to_point_bytes_per_s = 0;   // long messages inside a node
  double reduce_bytes_per_s = 0;           // two buffers into one, in bytes of one of them
  double network_latency_s = 0;            // a small message between nodes
  double network_efficiency = 1;           // of the port's rate: what long messages reach, (0, 1]
  double network_exchange_efficiency = 1;  // the same while as much comes in
  double intra_efficiency = 1;       // of the rate inside a node, (0, 1]; mpi: while every rank exchanges
  double collective_overhead_s = 0;  // of each call
  double eager_bytes = 0;            // messages up to this leave without the receiver, inside a node
  double network_eager_bytes = 0;    // the same between nodes; 0: the library's own over this transport
  double network_processor_s_per_byte = 0;  // of a core, at either end, taken from what computes there
  // Of k messages that leave or come in together the last takes 1 + spread ln k times an even share of the
  // port's time.
  double network_flow_spread = 0;
  double latency_scale = 1;  // of what a library's steps take without bytes, beside its constants
  std::vector<MessageTime> message_times;  // inside a node, ascending in bytes: in place of latency and rate
};

enum class OverrideTarget { device, nic, node };  // node: all its devices

// What differs from its type: a slow device, a degraded or dead port.
struct Override {
  int node = 0;
  int device = 0;  // local index, where that is the target
  int port = 0;    // likewise
  OverrideTarget target = OverrideTarget::device;
  double speed = 1;  // fraction of nominal that is left, up to 1; 0 (ports only): dead
};

// Where a device sits.
struct DevicePlace {
  int node = 0;
  int local = 0;
  int group = 0;  // index in Cluster::groups
};

// Of a plan whose steps were measured, what tells it from others (program/measured/plans_alike.h).
struct MeasuredPlan {
  int steps = 0;  // measured of it
  double micro_batch_tokens = 1, micro_batches = 1;
  int tp = 1, pp = 1, cp = 1, ep = 1, interleave = 1;
  std::string precision;
};

// What measurements of this very cluster say of the mechanisms that a step is made of (proto/cluster.proto).
// `mean` and `covariance` (lower triangle, row by row) are of the logarithms of factors on time.
struct SiteCalibration {
  std::string source;
  std::string runtime;
  int steps = 0, collectives = 0;
  std::vector<std::string> effects;
  std::vector<double> mean, covariance;
  double own_sd = 0;
  std::vector<MeasuredPlan> plans;  // the last effects are these plans'
  double alike_sd = 0;

  std::size_t first_of_plans() const { return effects.size() - plans.size(); }
  int at(std::string_view effect) const;  // index; -1: none
  double covariance_of(int a, int b) const;
};

struct Cluster {
  std::string name;
  std::string description;
  std::string source;
  std::vector<NodeGroup> groups;
  Fabric fabric;
  std::vector<DeviceProfile> profiles;
  CommunicationProfile communication;
  std::vector<Override> overrides;
  int shared_cores = 0;  // > 0: of one machine, on which all nodes stand
  std::optional<SiteCalibration> calibration;

  int nodes() const;
  int devices() const;
  DevicePlace place(int device) const;        // O(groups)
  int first_device(int node) const;           // O(groups)
  const NodeType& node_type(int node) const;  // O(groups)
  const DeviceProfile& profile_of(int device) const {
    return profiles[groups[place(device).group].node.profile];
  }
  // Fraction of nominal, from the overrides of the device and of its node: of its compute rate.
  double device_speed(int device) const;
  double nic_speed(int node, int port) const;  // fraction of nominal; 0: dead
};

// How many devices are busy at once where all are, of those that share a (first) node's memory and cores.
int devices_beside(const Cluster& cluster);
// Devices of one room or region, of nodes in the mean; 0 where the cluster is in one place.
int devices_of_room(const Cluster& cluster);

// Checks every figure (positive rates, counts that agree, a connected fabric) and resolves device profiles
// from the message first and the catalog second. Throws UserError(file, line of the field, …). `text` is the
// textproto that `message` came from; where it is part of a larger one, `at` says which. Defaults are filled
// in: to_proto writes them, and reading that back gives the same cluster exactly.
Cluster cluster_from_proto(const proto::Cluster& message, std::string_view file, std::string_view text);
Cluster cluster_from_proto(const proto::Cluster& message, const FieldCheck& at);
void to_proto(const Cluster& cluster, proto::Cluster* message);
// What an importer built, once more through all of the checks above: UserError(file, 0, …) where the file
// that it read describes nothing sound.
Cluster rechecked(const Cluster& cluster, std::string_view file);

// The same cluster with `nodes` nodes of its (single) node type. The fabric follows: a fat tree gets the
// leaves it needs, a torus the most even dimensions of the same number, a dragonfly the groups it needs.
// Overrides and host names of nodes that are gone are dropped. Throws UserError where it has several types,
// or one node type without network ports and `nodes` > 1.
Cluster with_nodes(Cluster cluster, int nodes);
// The same cluster with nodes of `devices` devices, more or fewer than before, of its (single) node type:
// ports, host and storage in proportion, a torus of the most even dimensions. Throws UserError where devices
// of a node are joined by a mesh or through bridges: those do not grow.
Cluster with_node_devices(Cluster cluster, int devices);
// Whole nodes, or the first `devices` devices of one node, or of racks (nodes of more than 16 devices behind
// switches) the fewest that give as many each: 512 are 64 of the 72 of each of eight. On shared cores,
// `devices` ranks, which share the host's memory evenly. Throws UserError where `devices` is nothing of it.
Cluster with_devices(Cluster cluster, int devices);

}  // namespace orrery
