#include "sim/network/flow_system.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <span>
#include <tuple>
#include <unordered_map>

#include "base/error.h"

namespace orrery::sim {
namespace {

using Entry = std::pair<int, double>;  // pattern, weight

// Largest integer weight of a constraint: SimGrid's flows have a weight by crossing a link several times.
constexpr int kMaxWeight = 4096;

// By how much an integer may be above the weight that it stands for: never below, so that no link carries
// more than it can. A flow costs SimGrid as much as its route is long: 1 to 40 instead of 4 to 157 is four
// times faster.
constexpr double kWeightTolerance = 0.01;
constexpr double kExact = 1e-6;

// Weights as the smallest integers within the tolerance, else rounded to 1/kMaxWeight of the largest.
Constraint with_integer_weights(double capacity, const std::vector<Entry>& weights, double tolerance) {
  double largest = 0;
  double smallest = std::numeric_limits<double>::infinity();
  for (const Entry& entry : weights) {
    largest = std::max(largest, entry.second);
    smallest = std::min(smallest, entry.second);
  }
  double scale = kMaxWeight / largest;
  bool rounded_up = false;
  for (int k = 1; k <= kMaxWeight; ++k) {
    const double candidate = k / smallest;
    if (candidate * largest > kMaxWeight * 1.0001) break;
    const bool close = std::all_of(weights.begin(), weights.end(), [&](const Entry& entry) {
      const double scaled = entry.second * candidate;
      return std::ceil(scaled * (1 - kExact)) <= scaled * (1 + tolerance);
    });
    if (close) {
      scale = candidate;
      rounded_up = true;
      break;
    }
  }
  Constraint result;
  result.capacity_bytes_per_s = capacity * scale;
  for (const Entry& entry : weights) {
    const double scaled = entry.second * scale;
    const double whole = rounded_up ? std::ceil(scaled * (1 - kExact)) : std::round(scaled);
    result.weights.emplace_back(entry.first, std::max(1, static_cast<int>(whole)));
  }
  return result;
}

}  // namespace

void LoadSum::add(int link, double weight) {
  if (weight_.size() <= static_cast<std::size_t>(link)) weight_.resize(static_cast<std::size_t>(link) + 1, 0);
  double& sum = weight_[static_cast<std::size_t>(link)];
  if (sum == 0) loaded_.push_back(link);
  sum += weight;
}

std::vector<LinkWeight> LoadSum::take() {
  std::sort(loaded_.begin(), loaded_.end());
  std::vector<LinkWeight> loads;
  loads.reserve(loaded_.size());
  for (const int link : loaded_) {
    double& sum = weight_[static_cast<std::size_t>(link)];
    loads.push_back({link, sum, sum});
    sum = 0;
  }
  loaded_.clear();
  return loads;
}

std::pair<int, bool> FlowSystem::add_link(LinkId id) {
  const auto [index, added] =
      index_.try_emplace(static_cast<std::uint64_t>(id), static_cast<std::uint32_t>(ids_.size()));
  if (added) {
    ids_.push_back(id);
    capacity_.push_back(0);
  }
  return {static_cast<int>(index), added};
}

int FlowSystem::add_pattern(std::vector<LinkWeight> loads, int queue) {
  patterns_.push_back({std::move(loads), queue});
  return static_cast<int>(patterns_.size()) - 1;
}

int FlowSystem::add_flow(int pattern, double bound_bytes_per_s) {
  const auto [at, added] =
      flow_index_.try_emplace({pattern, bound_bytes_per_s}, static_cast<int>(flows_.size()));
  if (added) flows_.push_back({pattern, bound_bytes_per_s});
  return at->second;
}

// Links with the same loads and capacity are one constraint. In an order that knows nothing of links.
std::vector<FlowSystem::Load> FlowSystem::distinct_loads() const {
  std::vector<std::size_t> end(capacity_.size() + 1, 0);  // of each link's entries, once they are filled in
  for (const Pattern& pattern : patterns_)
    for (const LinkWeight& load : pattern.loads)
      if (load.weight > 0) ++end[static_cast<std::size_t>(load.link) + 1];
  for (std::size_t link = 0; link < capacity_.size(); ++link) end[link + 1] += end[link];
  std::vector<Entry> entries(end.back());
  for (std::size_t p = 0; p < patterns_.size(); ++p)
    for (const LinkWeight& load : patterns_[p].loads)
      if (load.weight > 0)
        entries[end[static_cast<std::size_t>(load.link)]++] = {static_cast<int>(p), load.weight};
  std::vector<Load> distinct;
  std::unordered_multimap<std::uint64_t, std::size_t> known;  // hash to index; looked up only
  std::size_t begin = 0;
  for (std::size_t link = 0; link < capacity_.size(); begin = end[link++]) {
    const std::span<const Entry> own(entries.data() + begin, end[link] - begin);
    if (own.empty()) continue;
    std::uint64_t hash = std::bit_cast<std::uint64_t>(capacity_[link]);
    for (const auto& [pattern, weight] : own)
      hash = (hash ^ std::bit_cast<std::uint64_t>(weight) ^ static_cast<std::uint64_t>(pattern)) *
             0x9E3779B97F4A7C15ULL;
    const auto [first, last] = known.equal_range(hash);
    const bool seen = std::any_of(first, last, [&](const auto& at) {
      const Load& other = distinct[at.second];
      return other.capacity == capacity_[link] &&
             std::equal(own.begin(), own.end(), other.weights.begin(), other.weights.end());
    });
    if (seen) continue;
    known.emplace(hash, distinct.size());
    distinct.push_back({capacity_[link], {own.begin(), own.end()}});
  }
  std::sort(distinct.begin(), distinct.end(), [](const Load& a, const Load& b) {
    return std::tie(a.capacity, a.weights) < std::tie(b.capacity, b.weights);
  });
  return distinct;
}

// A constraint that loads no pattern more, in parts of its capacity, than another one is kept wherever that
// one is.
void FlowSystem::drop_implied(std::vector<const Load*>* loads) const {
  std::vector<std::vector<std::size_t>> of_pattern(patterns_.size());  // indices into loads
  for (std::size_t i = 0; i < loads->size(); ++i)
    for (const auto& [pattern, weight] : (*loads)[i]->weights)
      of_pattern[static_cast<std::size_t>(pattern)].push_back(i);
  std::vector<char> dropped(loads->size());
  std::vector<double> shares(patterns_.size(), 0);  // of the capacity of the constraint looked at
  for (std::size_t i = 0; i < loads->size(); ++i) {
    const Load& load = *(*loads)[i];
    for (const auto& [pattern, weight] : load.weights)
      shares[static_cast<std::size_t>(pattern)] = weight / load.capacity;
    // Who implies it has its rarest pattern.
    const auto& rarest = *std::min_element(load.weights.begin(), load.weights.end(), [&](auto& a, auto& b) {
      return of_pattern[static_cast<std::size_t>(a.first)].size() <
             of_pattern[static_cast<std::size_t>(b.first)].size();
    });
    for (const std::size_t other : of_pattern[static_cast<std::size_t>(rarest.first)]) {
      if (other == i || dropped[other]) continue;
      const Load& wider = *(*loads)[other];
      if (wider.weights.size() < load.weights.size()) continue;
      std::size_t within = 0;
      for (const auto& [pattern, weight] : wider.weights) {
        const double share = shares[static_cast<std::size_t>(pattern)];
        if (share > 0 && share <= weight / wider.capacity * (1 + 1e-9)) ++within;
      }
      if (within < load.weights.size()) continue;
      dropped[i] = true;
      break;
    }
    for (const auto& [pattern, weight] : load.weights) shares[static_cast<std::size_t>(pattern)] = 0;
  }
  std::size_t kept = 0;
  for (std::size_t i = 0; i < loads->size(); ++i)
    if (!dropped[i]) (*loads)[kept++] = (*loads)[i];
  loads->resize(kept);
}

void FlowSystem::reduce(bool keep_all) {
  const std::vector<Load> distinct = distinct_loads();

  // What one pattern alone can reach.
  std::vector<double> alone(patterns_.size(), std::numeric_limits<double>::infinity());
  for (const Load& load : distinct)
    for (const Entry& entry : load.weights) {
      double& rate = alone[static_cast<std::size_t>(entry.first)];
      rate = std::min(rate, load.capacity / entry.second);
    }
  lone_rate_.clear();
  std::vector<double> most(patterns_.size(), 0);  // of the flows of a pattern
  for (const Flow& flow : flows_) {
    const auto p = static_cast<std::size_t>(flow.pattern);
    lone_rate_.push_back(std::min(flow.bound_bytes_per_s, alone[p]));
    most[p] = std::max(most[p], lone_rate_.back());
  }

  std::vector<const Load*> binding;
  for (const Load& load : distinct) {
    if (!keep_all) {
      std::map<int, double> demand;  // by queue: its most demanding flow
      bool unlimited = false;
      for (const Entry& entry : load.weights) {
        const auto p = static_cast<std::size_t>(entry.first);
        if (most[p] == 0) continue;  // no flow of it is ever started
        unlimited = unlimited || patterns_[p].queue == kNoQueue;
        double& queue = demand[patterns_[p].queue];
        queue = std::max(queue, entry.second * most[p]);
      }
      double total = 0;
      for (const auto& [queue, rate] : demand) total += rate;
      // One queue: already in the lone rate of its flows.
      if (!unlimited && (demand.size() <= 1 || total <= load.capacity * (1 + 1e-9))) continue;
    }
    binding.push_back(&load);
  }
  if (!keep_all) drop_implied(&binding);

  pattern_constraints_.assign(patterns_.size(), {});
  constraints_.clear();
  for (const Load* kept : binding) {
    const Load& load = *kept;
    const int index = static_cast<int>(constraints_.size());
    constraints_.push_back(
        with_integer_weights(load.capacity, load.weights, keep_all ? kExact : kWeightTolerance));
    for (const Entry& entry : load.weights)
      pattern_constraints_[static_cast<std::size_t>(entry.first)].push_back(index);
  }
}

}  // namespace orrery::sim
