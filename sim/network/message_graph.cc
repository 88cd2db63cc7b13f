#include "sim/network/message_graph.h"

#include <algorithm>
#include <cmath>

#include "sim/network/collective_edges.h"

namespace orrery::sim {
namespace {

// The order in which the ring of `channel` of `channels` visits the members: node by node, and in each node
// rotated, so that every channel leaves a node by another port: the members of a port follow each other.
std::vector<int> ring_order(const std::vector<int>& devices, const Cluster& cluster, int channel,
                            int channels) {
  std::vector<std::vector<int>> nodes;
  std::vector<int> node_of;
  for (const int device : devices) {
    const int node = cluster.place(device).node;
    const auto at = std::find(node_of.begin(), node_of.end(), node);
    if (at == node_of.end()) {
      node_of.push_back(node);
      nodes.push_back({device});
    } else {
      nodes[static_cast<std::size_t>(at - node_of.begin())].push_back(device);
    }
  }
  std::vector<int> order;
  for (std::size_t n = 0; n < nodes.size(); ++n) {
    const std::size_t k = nodes[n].size();
    // What left the last node by member i enters this one by member i.
    const std::size_t turn = static_cast<std::size_t>(channel) * k / static_cast<std::size_t>(channels);
    const std::size_t first = (turn + n * (k - 1)) % k;
    for (std::size_t i = 0; i < k; ++i) order.push_back(nodes[n][(first + i) % k]);
  }
  return order;
}

int ring_channels(const std::vector<int>& devices, const Cluster& cluster) {
  double channels = 1;
  for (const Edge& edge : collective_edges(EdgeShape::ring, 0, devices, cluster))
    channels = std::max(channels, 1 / edge.share);
  return static_cast<int>(std::lround(channels));
}

void add_ring(std::vector<MessageNode>& graph, const std::vector<int>& order, int steps, int channels) {
  const int n = static_cast<int>(order.size());
  const int base = static_cast<int>(graph.size());
  for (int step = 0; step < steps; ++step)
    for (int i = 0; i < n; ++i) {
      MessageNode node;
      node.source = order[static_cast<std::size_t>(i)];
      node.destination = order[static_cast<std::size_t>((i + 1) % n)];
      node.share = 1.0 / n / channels;
      node.latency_share = 1.0 / steps;
      node.rate_share = static_cast<double>(steps) / n / channels;
      if (step + 1 < steps) {
        const int next = base + (step + 1) * n;
        node.next = {next + i, next + (i + 1) % n};
        std::sort(node.next.begin(), node.next.end());
        node.next.erase(std::unique(node.next.begin(), node.next.end()), node.next.end());
      }
      graph.push_back(std::move(node));
    }
}

// Round r: exchange everything with the partner whose number differs in bit r. Members beyond the largest
// power of two are left out: their two extra steps are in the plan's latency.
void add_doubling(std::vector<MessageNode>& graph, const std::vector<int>& devices) {
  int n = 1;
  int rounds = 0;
  for (; 2 * n <= static_cast<int>(devices.size()); n *= 2) ++rounds;
  for (int round = 0; round < rounds; ++round)
    for (int i = 0; i < n; ++i) {
      MessageNode node;
      node.source = devices[static_cast<std::size_t>(i)];
      node.destination = devices[static_cast<std::size_t>(i ^ (1 << round))];
      node.share = 1;
      node.latency_share = 1.0 / rounds;
      node.rate_share = rounds;
      const int next = static_cast<int>(graph.size()) - i + n;
      if (round + 1 < rounds) node.next = {next + i, next + (i ^ (1 << round))};
      graph.push_back(std::move(node));
    }
}

}  // namespace

std::vector<MessageNode> message_graph(CollectiveKind kind, const CollectivePlan& plan, int root,
                                       const std::vector<int>& devices, const Cluster& cluster) {
  std::vector<MessageNode> graph;
  const int n = static_cast<int>(devices.size());
  if (n <= 1) return graph;
  const EdgeShape shape = edge_shape(kind, plan.algorithm);
  if (plan.algorithm == Algorithm::ring && shape == EdgeShape::ring) {
    const int steps = (kind == CollectiveKind::all_reduce ? 2 : 1) * (n - 1);
    const int channels = ring_channels(devices, cluster);
    for (int c = 0; c < channels; ++c)
      add_ring(graph, ring_order(devices, cluster, c, channels), steps, channels);
    return graph;
  }
  if (plan.algorithm == Algorithm::recursive_doubling && kind == CollectiveKind::all_reduce) {
    add_doubling(graph, devices);
    return graph;
  }
  const double unit = edge_unit(kind, plan.algorithm, n);
  for (const Edge& edge : collective_edges(shape, root, devices, cluster)) {
    MessageNode node;
    node.source = devices[static_cast<std::size_t>(edge.source)];
    node.destination = devices[static_cast<std::size_t>(edge.destination)];
    node.share = edge.share * unit;
    node.latency_share = 1;
    node.rate_share = edge.share * unit;
    graph.push_back(std::move(node));
  }
  return graph;
}

}  // namespace orrery::sim
