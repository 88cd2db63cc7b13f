// A checked description of a machine. Devices are numbered 0..devices()-1, node by node in the order of the
// groups.
#pragma once

#include <cstdint>
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
constexpr int kMaxDevicesPerNode = 4096;

enum class IntraKind { nvswitch, nvlink_mesh, pcie, shared_memory };

struct IntraNode {
  IntraKind kind = IntraKind::nvswitch;
  double bandwidth_bytes_per_s = 0;  // one device, one direction
  double latency_s = 0;
  std::vector<int> mesh_links = {};  // devices x devices, row-major
  int devices_per_bridge = 0;
  // pcie: of one bridge into the CPU interconnect, each direction. shared_memory: of all ranks of the host
  // together; 0: every core at the full rate at once.
  double bridge_bandwidth_bytes_per_s = 0;
  bool in_network_reduction = false;
};

struct Nic {
  int count = 0;
  double bandwidth_bytes_per_s = 0;  // one port, one direction
  double latency_s = 0;
  std::vector<int> of_device = {};  // one entry per local device
  bool direct = false;
  double pcie_bandwidth_bytes_per_s = 0;
};

struct NodeType {
  std::string name;
  int profile = 0;  // index in Cluster::profiles
  int devices = 0;
  IntraNode intra;
  Nic nic;
  int shared_cores = 0;
  double host_memory_bytes = 0;
  double storage_read_bytes_per_s = 0;
  double storage_write_bytes_per_s = 0;
  double price_usd_per_device_hour = 0;
  double host_power_w = 0;
  std::vector<std::string> hosts;
};

struct NodeGroup {
  NodeType node;
  int count = 0;
};

enum class FabricKind { star, fat_tree, rail_fat_tree, torus, dragonfly };
enum class Transport { infiniband, roce, tcp, host };

struct Fabric {
  FabricKind kind = FabricKind::star;
  Transport transport = Transport::infiniband;
  double switch_latency_s = 0;
  int nodes_per_leaf = 0;
  double oversubscription = 1;
  // torus and dragonfly: of a local link (0: as a node's ports together). star: of the switch itself, shared
  // by all that crosses it (0: non-blocking).
  double link_bandwidth_bytes_per_s = 0;
  std::vector<int> torus;
  int groups = 0;
  int routers = 0;
  int nodes_per_router = 0;
  double global_bandwidth_bytes_per_s = 0;
};

enum class CommunicationLibrary { nccl, mpi };

struct MessageTime {
  double bytes = 0;
  double one_way_s = 0;
  double exchange_s = 0;
};

struct CommunicationProfile {
  CommunicationLibrary library = CommunicationLibrary::nccl;
  std::string source;
  bool calibrated = false;
  double point_to_point_latency_s = 0;
  double point_to_point_bytes_per_s = 0;
  double reduce_bytes_per_s = 0;
  double network_latency_s = 0;
  double network_efficiency = 1;
  double network_exchange_efficiency = 1;
  double intra_efficiency = 1;
  double collective_overhead_s = 0;
  double eager_bytes = 0;
  double network_eager_bytes = 0;
  double network_processor_s_per_byte = 0;
  double network_flow_spread = 0;
  std::vector<MessageTime> message_times;  // ascending in bytes
};

enum class OverrideTarget { device, nic, node };  // node: all its devices

struct Override {
  int node = 0;
  int device = 0;
  int port = 0;
  OverrideTarget target = OverrideTarget::device;
  double speed = 1;
};

// Where a device sits.
struct DevicePlace {
  int node = 0;
  int local = 0;
  int group = 0;  // index in Cluster::groups
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
// Whole nodes, or the first `devices` devices of one node; on shared cores, `devices` ranks, which share the
// host's memory evenly. Throws UserError where `devices` is neither.
Cluster with_devices(Cluster cluster, int devices);

}  // namespace orrery
