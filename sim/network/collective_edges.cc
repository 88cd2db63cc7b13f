#include "sim/network/collective_edges.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"

namespace orrery::sim {
namespace {

// Members of one node, and for each port that they own the member that sits at it.
struct NodeMembers {
  std::vector<int> positions;
  std::vector<int> at_port;
};

int port_of(const NodeType& node, int local) {
  if (node.nic.count == 0) return 0;
  const auto at = static_cast<std::size_t>(local);
  return at < node.nic.of_device.size() ? node.nic.of_device[at] : local * node.nic.count / node.devices;
}

std::vector<NodeMembers> by_node(const std::vector<int>& devices, const Cluster& cluster) {
  std::map<int, std::size_t> index;
  std::vector<NodeMembers> nodes;  // in the order of their first member
  std::vector<std::map<int, int>> ports;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const DevicePlace place = cluster.place(devices[i]);
    const auto [at, added] = index.try_emplace(place.node, nodes.size());
    if (added) {
      nodes.emplace_back();
      ports.emplace_back();
    }
    nodes[at->second].positions.push_back(static_cast<int>(i));
    ports[at->second].try_emplace(
        port_of(cluster.groups[static_cast<std::size_t>(place.group)].node, place.local),
        static_cast<int>(i));
  }
  for (std::size_t n = 0; n < nodes.size(); ++n)
    for (const auto& [port, position] : ports[n]) nodes[n].at_port.push_back(position);
  return nodes;
}

int channels_of(const std::vector<NodeMembers>& nodes) {
  std::size_t fewest = nodes.front().at_port.size();
  for (const NodeMembers& node : nodes) fewest = std::min(fewest, node.at_port.size());
  return nodes.size() == 1 ? 1 : static_cast<int>(fewest);
}

void add(std::vector<Edge>& edges, int source, int destination, double share) {
  if (source != destination) edges.push_back({source, destination, share});
}

std::vector<Edge> ring_edges(const std::vector<NodeMembers>& nodes, bool closed) {
  std::vector<Edge> edges;
  const int channels = channels_of(nodes);
  for (const NodeMembers& node : nodes) {
    const std::size_t k = node.positions.size();
    // Between nodes the ring enters and leaves by the port's member, so inside a node it closes.
    const std::size_t inside = nodes.size() > 1 || closed ? k : k - 1;
    if (k > 1)
      for (std::size_t i = 0; i < inside; ++i) add(edges, node.positions[i], node.positions[(i + 1) % k], 1);
  }
  if (nodes.size() > 1) {
    const std::size_t last = closed ? nodes.size() : nodes.size() - 1;
    for (std::size_t n = 0; n < last; ++n)
      for (int c = 0; c < channels; ++c)
        add(edges, nodes[n].at_port[static_cast<std::size_t>(c)],
            nodes[(n + 1) % nodes.size()].at_port[static_cast<std::size_t>(c)], 1.0 / channels);
  }
  return edges;
}

// Parent of node i in the first of NCCL's two trees (src/graph/trees.cc, ncclGetBtree): a binary tree in
// which odd nodes are leaves. The second is its mirror image (an even number of nodes) or shifted by one.
int tree_parent(int i, int n) {
  if (i == 0) return -1;
  int bit = 1;
  while ((i & bit) == 0) bit <<= 1;
  int up = (i ^ bit) | (bit << 1);
  if (up >= n) up = i ^ bit;
  return up;
}

std::vector<Edge> tree_edges(const std::vector<NodeMembers>& nodes, bool by_switch) {
  std::vector<Edge> edges;
  for (const NodeMembers& node : nodes) {
    const std::size_t k = node.positions.size();
    // NVSwitch reduces and multicasts: once out of and once into each member, by whatever neighbour.
    for (std::size_t i = 0; by_switch && k > 1 && i < k; ++i)
      add(edges, node.positions[i], node.positions[(i + 1) % k], 1);
    for (std::size_t i = 0; !by_switch && i + 1 < k; ++i) {
      add(edges, node.positions[i], node.positions[i + 1], 1);
      add(edges, node.positions[i + 1], node.positions[i], 1);
    }
  }
  const int n = static_cast<int>(nodes.size());
  const int channels = channels_of(nodes);
  for (int tree = 0; tree < 2 && n > 1; ++tree)
    for (int i = 0; i < n; ++i) {
      const int parent = tree_parent(i, n);
      if (parent < 0) continue;
      const auto node_of = [&](int position) {
        if (tree == 0) return static_cast<std::size_t>(position);
        return static_cast<std::size_t>(n % 2 == 0 ? n - 1 - position : (position + 1) % n);
      };
      for (int c = 0; c < channels; ++c) {
        const int low = nodes[node_of(i)].at_port[static_cast<std::size_t>(c)];
        const int high = nodes[node_of(parent)].at_port[static_cast<std::size_t>(c)];
        add(edges, low, high, 0.5 / channels);
        add(edges, high, low, 0.5 / channels);
      }
    }
  return edges;
}

}  // namespace

EdgeShape edge_shape(CollectiveKind kind, Algorithm algorithm) {
  switch (kind) {
    case CollectiveKind::all_to_all:
      return EdgeShape::all_pairs;
    case CollectiveKind::gather:
      return EdgeShape::to_root;
    case CollectiveKind::scatter:
      return EdgeShape::from_root;
    case CollectiveKind::broadcast:
    case CollectiveKind::reduce:
      return EdgeShape::chain;
    case CollectiveKind::all_reduce:
    case CollectiveKind::reduce_scatter:
    case CollectiveKind::all_gather:
      break;
  }
  if (algorithm == Algorithm::nvls_tree) return EdgeShape::switch_tree;
  return algorithm == Algorithm::tree ? EdgeShape::tree : EdgeShape::ring;
}

double edge_unit(CollectiveKind kind, Algorithm algorithm, int ranks) {
  const double n = ranks;
  switch (kind) {
    case CollectiveKind::all_to_all:
    case CollectiveKind::gather:
    case CollectiveKind::scatter:
      return 1 / n;
    case CollectiveKind::broadcast:
    case CollectiveKind::reduce:
      return 1;
    case CollectiveKind::reduce_scatter:
    case CollectiveKind::all_gather:
      return (n - 1) / n;
    case CollectiveKind::all_reduce:
      break;
  }
  if (algorithm == Algorithm::recursive_doubling) return std::ceil(std::log2(n));
  const bool once =
      algorithm == Algorithm::tree || algorithm == Algorithm::nvls || algorithm == Algorithm::nvls_tree;
  return once ? 1 : 2 * (n - 1) / n;
}

std::vector<Edge> collective_edges(EdgeShape shape, int root, const std::vector<int>& devices,
                                   const Cluster& cluster) {
  std::vector<Edge> edges;
  const int n = static_cast<int>(devices.size());
  if (n <= 1) return edges;
  switch (shape) {
    case EdgeShape::ring:
      return ring_edges(by_node(devices, cluster), /*closed=*/true);
    case EdgeShape::chain:
      return ring_edges(by_node(devices, cluster), /*closed=*/false);
    case EdgeShape::tree:
      return tree_edges(by_node(devices, cluster), /*by_switch=*/false);
    case EdgeShape::switch_tree:
      return tree_edges(by_node(devices, cluster), /*by_switch=*/true);
    case EdgeShape::all_pairs:
      for (int i = 0; i < n; ++i)
        for (int k = 1; k < n; ++k) add(edges, i, (i + k) % n, 1);
      return edges;
    case EdgeShape::from_root:
    case EdgeShape::to_root:
      ORRERY_CHECK(root >= 0 && root < n, "root " + std::to_string(root));
      for (int i = 0; i < n; ++i)
        if (shape == EdgeShape::from_root)
          add(edges, root, i, 1);
        else
          add(edges, i, root, 1);
      return edges;
  }
  return edges;
}

}  // namespace orrery::sim
