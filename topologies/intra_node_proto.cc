#include "topologies/intra_node_proto.h"

#include <fmt/format.h>

#include "proto/cluster.pb.h"
#include "proto/field_check.h"

namespace orrery {
namespace {

constexpr int kMaxMeshDevices = 256;
constexpr int kMaxTorusDimensions = 8;

// Between two devices of a node at least as good as two NVLink hops.
bool mesh_joins(const std::vector<int>& links, int devices, int a, int b) {
  if (links[a * devices + b] > 0) return true;
  for (int via = 0; via < devices; ++via) {
    if (links[a * devices + via] > 0 && links[via * devices + b] > 0) return true;
  }
  return false;
}

std::vector<int> joined_all_to_all(int devices) {
  std::vector<int> links(static_cast<std::size_t>(devices) * devices, 1);
  for (int i = 0; i < devices; ++i) links[static_cast<std::size_t>(i) * devices + i] = 0;
  return links;
}

void check_mesh(const IntraNode& intra, int devices, bool has_pcie, const FieldCheck& check) {
  check.within("mesh_links", static_cast<int>(intra.mesh_links.size()), 0, kMaxMeshDevices * kMaxMeshDevices);
  if (intra.mesh_links.size() != static_cast<std::size_t>(devices) * devices)
    check.fail("mesh_links", fmt::format("mesh_links has {} entries", intra.mesh_links.size()),
               fmt::format("expected {} devices x {} devices", devices, devices));
  for (int i = 0; i < devices; ++i) {
    for (int j = 0; j < devices; ++j) {
      const int links = intra.mesh_links[i * devices + j];
      if (links < 0 || links > 1000 || (i == j && links != 0))
        check.fail("mesh_links", fmt::format("{} links between devices {} and {}", links, i, j),
                   "expected none from a device to itself, and no negative count");
      if (links != intra.mesh_links[j * devices + i])
        check.fail("mesh_links", fmt::format("devices {} and {} disagree on their links", i, j),
                   "expected a symmetric matrix");
      if (i != j && !has_pcie && !mesh_joins(intra.mesh_links, devices, i, j))
        check.fail(
            "mesh_links", fmt::format("no path of two links joins devices {} and {}", i, j),
            "expected a connected mesh, or nic.pcie_bandwidth_bytes_per_s for the way through the host");
    }
  }
}

}  // namespace

std::vector<int> read_dimensions(const google::protobuf::RepeatedField<int>& sizes, int places,
                                 std::string_view of_what, const FieldCheck& check) {
  if (sizes.empty() || sizes.size() > kMaxTorusDimensions)
    check.fail("torus", fmt::format("a torus of {} dimensions", sizes.size()),
               fmt::format("expected from 1 to {}", kMaxTorusDimensions));
  double product = 1;
  for (const int size : sizes) product *= check.within("torus", size, 1, kMaxNodes);
  if (product != places)
    check.fail("torus", fmt::format("the torus has {} places for {} {}", product, places, of_what),
               fmt::format("expected dimensions whose product is the number of {}", of_what));
  return {sizes.begin(), sizes.end()};
}

IntraNode read_intra(const proto::NodeType& message, const FieldCheck& node) {
  const proto::IntraNode& from = message.intra();
  const FieldCheck check = node.inside("intra");
  IntraNode intra;
  const int devices = message.devices();
  const bool alone = devices == 1;
  switch (from.kind()) {
    case proto::IntraNode::NVSWITCH:
      intra.kind = IntraKind::nvswitch;
      break;
    case proto::IntraNode::NVLINK_MESH:
      intra.kind = IntraKind::nvlink_mesh;
      break;
    case proto::IntraNode::PCIE:
      intra.kind = IntraKind::pcie;
      break;
    case proto::IntraNode::SHARED_MEMORY:
      intra.kind = IntraKind::shared_memory;
      break;
    case proto::IntraNode::TORUS:
      intra.kind = IntraKind::nvswitch;
      break;
    default:
      if (!alone || from.kind() != proto::IntraNode::UNSPECIFIED)
        check.fail("kind", "how the devices of a node are joined is not said",
                   "expected NVSWITCH, NVLINK_MESH, PCIE, TORUS or SHARED_MEMORY");
      intra.kind = IntraKind::pcie;
  }
  intra.bandwidth_bytes_per_s =
      alone ? check.rate("bandwidth_bytes_per_s", from.bandwidth_bytes_per_s())
            : check.rate("bandwidth_bytes_per_s",
                         check.positive("bandwidth_bytes_per_s", from.bandwidth_bytes_per_s()));
  intra.latency_s = check.latency("latency_s", from.latency_s());
  intra.in_network_reduction = from.in_network_reduction();
  if (intra.in_network_reduction && intra.kind != IntraKind::nvswitch)
    check.fail("in_network_reduction", "only an NVSwitch reduces in the network", "expected kind: NVSWITCH");
  intra.bridge_bandwidth_bytes_per_s =
      check.rate("bridge_bandwidth_bytes_per_s", from.bridge_bandwidth_bytes_per_s());
  if (intra.kind == IntraKind::pcie) {
    intra.devices_per_bridge =
        from.devices_per_bridge() == 0
            ? devices
            : check.within("devices_per_bridge", from.devices_per_bridge(), 1, devices);
    if (intra.devices_per_bridge < devices)
      check.rate("bridge_bandwidth_bytes_per_s",
                 check.positive("bridge_bandwidth_bytes_per_s", from.bridge_bandwidth_bytes_per_s()));
  } else if (from.devices_per_bridge() != 0) {
    check.fail("devices_per_bridge", "devices_per_bridge belongs to kind PCIE", "expected it there only");
  }
  if (intra.kind == IntraKind::nvlink_mesh) {
    intra.mesh_links.assign(from.mesh_links().begin(), from.mesh_links().end());
    if (intra.mesh_links.empty() && devices <= kMaxMeshDevices) intra.mesh_links = joined_all_to_all(devices);
    check_mesh(intra, devices, message.nic().pcie_bandwidth_bytes_per_s() > 0, check);
  } else if (from.mesh_links_size() > 0) {
    check.fail("mesh_links", "mesh_links belongs to kind NVLINK_MESH", "expected it there only");
  }
  if (from.kind() == proto::IntraNode::TORUS) {
    intra.torus = read_dimensions(from.torus(), devices, "devices of a node", check);
    if (intra.in_network_reduction)
      check.fail("in_network_reduction", "a torus has no switches", "expected kind: NVSWITCH");
  } else if (from.torus_size() > 0) {
    check.fail("torus", "torus belongs to kind TORUS", "expected it there only");
  }
  return intra;
}

void write_intra(const IntraNode& intra, proto::IntraNode* to) {
  to->set_kind(intra.torus.empty() ? static_cast<proto::IntraNode::Kind>(static_cast<int>(intra.kind) + 1)
                                   : proto::IntraNode::TORUS);
  for (const int size : intra.torus) to->add_torus(size);
  to->set_bandwidth_bytes_per_s(intra.bandwidth_bytes_per_s);
  to->set_latency_s(intra.latency_s);
  for (const int links : intra.mesh_links) to->add_mesh_links(links);
  to->set_devices_per_bridge(intra.devices_per_bridge);
  to->set_bridge_bandwidth_bytes_per_s(intra.bridge_bandwidth_bytes_per_s);
  to->set_in_network_reduction(intra.in_network_reduction);
}

}  // namespace orrery
