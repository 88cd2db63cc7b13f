#include "sim/flow_system.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "base/error.h"

namespace orrery::sim {
namespace {

using Entry = std::pair<int, double>;  // pattern, weight

struct RealConstraint {
  double capacity = 0;
  std::vector<Entry> weights;
};

// Largest integer weight of a constraint: SimGrid's flows have a weight by crossing a link several times.
constexpr int kMaxWeight = 256;

// Weights as integers, exactly where a factor up to kMaxWeight makes them so, else rounded to 1/kMaxWeight of
// the largest.
Constraint with_integer_weights(const RealConstraint& real) {
  double largest = 0;
  double smallest = std::numeric_limits<double>::infinity();
  for (const Entry& entry : real.weights) {
    largest = std::max(largest, entry.second);
    smallest = std::min(smallest, entry.second);
  }
  double scale = kMaxWeight / largest;
  for (int k = 1; k <= kMaxWeight; ++k) {
    const double candidate = k / smallest;
    if (candidate * largest > kMaxWeight * 1.0001) break;
    const bool exact = std::all_of(real.weights.begin(), real.weights.end(), [&](const Entry& entry) {
      const double scaled = entry.second * candidate;
      return std::abs(scaled - std::round(scaled)) <= 1e-6 * scaled;
    });
    if (exact) {
      scale = candidate;
      break;
    }
  }
  Constraint result;
  result.capacity_bytes_per_s = real.capacity * scale;
  for (const Entry& entry : real.weights)
    result.weights.emplace_back(entry.first,
                                std::max(1, static_cast<int>(std::lround(entry.second * scale))));
  return result;
}

}  // namespace

std::vector<LinkWeight> merged(std::vector<LinkWeight> loads) {
  std::stable_sort(loads.begin(), loads.end(),
                   [](const LinkWeight& a, const LinkWeight& b) { return a.link < b.link; });
  std::vector<LinkWeight> result;
  for (const LinkWeight& load : loads) {
    if (!result.empty() && result.back().link == load.link) {
      result.back().weight += load.weight;
      result.back().bytes += load.bytes;
    } else {
      result.push_back(load);
    }
  }
  return result;
}

int FlowSystem::add_pattern(std::vector<LinkWeight> loads, int lane) {
  patterns_.push_back({merged(std::move(loads)), lane});
  return static_cast<int>(patterns_.size()) - 1;
}

int FlowSystem::add_flow(int pattern, double bound_bytes_per_s) {
  const auto [at, added] =
      flow_index_.try_emplace({pattern, bound_bytes_per_s}, static_cast<int>(flows_.size()));
  if (added) flows_.push_back({pattern, bound_bytes_per_s});
  return at->second;
}

void FlowSystem::reduce(bool keep_all) {
  // Links with the same loads and capacity are one constraint.
  std::vector<std::pair<LinkId, Entry>> by_link;
  for (std::size_t p = 0; p < patterns_.size(); ++p)
    for (const LinkWeight& load : patterns_[p].loads)
      if (load.weight > 0) by_link.push_back({load.link, {static_cast<int>(p), load.weight}});
  std::sort(by_link.begin(), by_link.end());
  std::map<std::pair<double, std::vector<Entry>>, bool> distinct;
  for (std::size_t begin = 0; begin < by_link.size();) {
    std::vector<Entry> weights;
    std::size_t end = begin;
    for (; end < by_link.size() && by_link[end].first == by_link[begin].first; ++end)
      weights.push_back(by_link[end].second);
    distinct.emplace(std::make_pair(capacity_.at(by_link[begin].first), std::move(weights)), true);
    begin = end;
  }

  // What one pattern alone can reach.
  std::vector<double> alone(patterns_.size(), std::numeric_limits<double>::infinity());
  for (const auto& [key, unused] : distinct)
    for (const Entry& entry : key.second) {
      double& rate = alone[static_cast<std::size_t>(entry.first)];
      rate = std::min(rate, key.first / entry.second);
    }
  lone_rate_.clear();
  std::vector<double> most(patterns_.size(), 0);  // of the flows of a pattern
  for (const Flow& flow : flows_) {
    const auto p = static_cast<std::size_t>(flow.pattern);
    lone_rate_.push_back(std::min(flow.bound_bytes_per_s, alone[p]));
    most[p] = std::max(most[p], lone_rate_.back());
  }

  pattern_constraints_.assign(patterns_.size(), {});
  constraints_.clear();
  for (const auto& [key, unused] : distinct) {
    if (!keep_all) {
      std::map<int, double> demand;  // by lane: its most demanding flow
      bool unlimited = false;
      for (const Entry& entry : key.second) {
        const auto p = static_cast<std::size_t>(entry.first);
        if (most[p] == 0) continue;  // no flow of it is ever started
        unlimited = unlimited || patterns_[p].lane == kNoLane;
        double& lane = demand[patterns_[p].lane];
        lane = std::max(lane, entry.second * most[p]);
      }
      double total = 0;
      for (const auto& [lane, rate] : demand) total += rate;
      // One lane: already in the lone rate of its flows.
      if (!unlimited && (demand.size() <= 1 || total <= key.first * (1 + 1e-9))) continue;
    }
    const int index = static_cast<int>(constraints_.size());
    constraints_.push_back(with_integer_weights({key.first, key.second}));
    for (const Entry& entry : key.second)
      pattern_constraints_[static_cast<std::size_t>(entry.first)].push_back(index);
  }
}

}  // namespace orrery::sim
