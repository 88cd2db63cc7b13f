#include "sim/core_speed.h"

#include <algorithm>
#include <tuple>

namespace orrery::sim {
namespace {

// Of a node's cores, by packets: what computes is not starved.
constexpr double kMostTaken = 0.9;

// What those get who want most.
double largest_share(const NodeCores& node, std::vector<AtWork>& at_work, int busy) {
  std::sort(at_work.begin(), at_work.end(), [](const AtWork& a, const AtWork& b) {
    return std::tie(a.core_share, a.ranks) < std::tie(b.core_share, b.ranks);
  });
  double cores = node.cores;
  int left = busy;
  double share = at_work.back().core_share;
  for (const AtWork& some : at_work) {
    share = cores / left;
    if (some.core_share >= share) break;  // the rest divide what is left evenly
    cores -= some.core_share * some.ranks;
    left -= some.ranks;
    share = some.core_share;
  }
  return share;
}

}  // namespace

double core_speed(const NodeCores& node, std::vector<AtWork>& at_work, double core_share,
                  double taken_cores) {
  int busy = 0;
  for (const AtWork& some : at_work) busy += some.ranks;
  if (busy == 0) return 1;
  const bool shared = node.cores > 0;
  double speed = 1;
  if (shared) speed = std::min(speed, largest_share(node, at_work, busy) / core_share);
  if (!node.keep.empty()) {
    const auto at_once = static_cast<std::size_t>(shared ? std::min(busy, node.cores) : busy);
    speed *= node.keep[std::min(at_once, node.keep.size()) - 1];
  }
  if (shared) speed *= 1 - std::clamp(taken_cores / node.cores, 0.0, kMostTaken);
  return speed;
}

}  // namespace orrery::sim
