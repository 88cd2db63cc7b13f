#include "planner/tables/unlike_groups.h"

#include <algorithm>

namespace orrery::planner {
namespace {

// Nodes at whose ends is looked: with digits that do not divide a node's devices, groups lie across the end
// of one of the first.
constexpr int kNodesLookedAt = 8;

struct Digit {
  int size = 1, stride = 1;
};

// Whether blocks of so many neighbours never lie across the end of a node but on whole ones.
bool ends_with_nodes(int block, int on_node) {
  return on_node % block == 0 || block % on_node == 0;
}

bool groups_alike(const Choices& c, int on_node) {
  const int world = c.world();
  if (world <= on_node) return true;
  int stride = 1;
  std::vector<Digit> of_experts;  // digits that tell ranks apart which see different tokens, fastest first
  bool experts_outermost = false;
  for (const Dimension dimension : c.order) {
    int size = 1;
    if (dimension == Dimension::tp) {
      size = c.tp;
      if (!ends_with_nodes(stride * c.etp, on_node)) return false;
      if (c.sequence_parallel) of_experts.insert(of_experts.begin(), {c.tp / c.etp, stride * c.etp});
    } else if (dimension == Dimension::cp || dimension == Dimension::dp) {
      size = dimension == Dimension::cp ? c.cp : c.dp;
      of_experts.push_back({size, stride});
      experts_outermost = false;
    } else if (dimension == Dimension::pp) {
      size = c.pp;
    } else {
      experts_outermost = true;
    }
    stride *= size;
    if (stride < world && !ends_with_nodes(stride, on_node)) return false;
  }
  // Experts are dealt to neighbours among these, or to the farthest (program/placement.h): a group takes
  // whole digits, and a part of one.
  if (experts_outermost) std::reverse(of_experts.begin(), of_experts.end());
  int left = c.ep;
  for (const Digit& digit : of_experts) {
    if (left == 1) break;
    if (left % digit.size == 0) {
      left /= digit.size;
      continue;
    }
    const int block = experts_outermost ? digit.size / left : left;
    return digit.size % left == 0 && ends_with_nodes(digit.stride * block, on_node);
  }
  return true;
}

}  // namespace

std::vector<int> ranks_unlike(const Choices& c, int on_node) {
  std::vector<int> ranks = {0};
  if (groups_alike(c, on_node)) return ranks;
  for (int node = 1; node <= kNodesLookedAt && node * on_node < c.world(); ++node)
    ranks.push_back(node * on_node - 1);
  return ranks;
}

std::vector<int> spread_over_nodes(const std::vector<std::int32_t>& ranks, int on_node) {
  std::vector<int> spread;
  int last = -1;
  for (const std::int32_t rank : ranks) {
    const int node = rank / on_node;
    if (node == last) {
      ++spread.back();
      continue;
    }
    last = node;
    spread.push_back(1);
  }
  std::sort(spread.begin(), spread.end());
  return spread;
}

}  // namespace orrery::planner
