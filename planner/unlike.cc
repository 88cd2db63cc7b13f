#include "planner/unlike.h"

#include <algorithm>
#include <cmath>
#include <queue>
#include <tuple>

namespace orrery::planner {
namespace {

// Stages filled in order up to `most` seconds each, the later ones keeping a layer; whether that suffices.
bool fill(const std::vector<std::vector<double>>& seconds, double most, std::vector<int>* cut) {
  const int stages = static_cast<int>(seconds.size());
  const int layers = static_cast<int>(seconds.front().size()) - 1;
  cut->assign(seconds.size(), 0);
  int at = 0;
  for (int stage = 0; stage < stages; ++stage) {
    const std::vector<double>& sums = seconds[static_cast<std::size_t>(stage)];
    int end = at + 1;
    while (end < layers - (stages - 1 - stage) &&
           sums[static_cast<std::size_t>(end) + 1] - sums[static_cast<std::size_t>(at)] <= most)
      ++end;
    if (sums[static_cast<std::size_t>(end)] - sums[static_cast<std::size_t>(at)] > most) return false;
    (*cut)[static_cast<std::size_t>(stage)] = end - at;
    at = end;
  }
  return at == layers;
}

}  // namespace

std::vector<std::int64_t> balanced_shares(const std::vector<double>& seconds, std::int64_t micro_batches,
                                          std::int64_t unit) {
  const auto replicas = static_cast<std::int64_t>(seconds.size());
  if (unit < 1 || micro_batches % unit != 0 || micro_batches / unit < replicas) return {};
  std::vector<std::int64_t> shares(seconds.size(), 0);
  // Proportional, rounded down, and the rest one by one to who then finishes first: no exchange of a unit
  // between two replicas makes the last finish earlier.
  double rate = 0;
  for (const double s : seconds) rate += 1 / s;
  const std::int64_t units = micro_batches / unit;
  std::int64_t left = units;
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    shares[i] = std::max<std::int64_t>(
        1, static_cast<std::int64_t>(static_cast<double>(units) / (seconds[i] * rate)));
    left -= shares[i];
  }
  const auto last_to_finish = [&] {
    std::size_t last = seconds.size();
    for (std::size_t i = 0; i < seconds.size(); ++i)
      if (shares[i] > 1 && (last == seconds.size() || static_cast<double>(shares[i]) * seconds[i] >
                                                          static_cast<double>(shares[last]) * seconds[last]))
        last = i;
    return last;
  };
  for (; left < 0; ++left) --shares[last_to_finish()];
  using Finish = std::tuple<double, std::size_t>;  // with one unit more
  std::priority_queue<Finish, std::vector<Finish>, std::greater<>> next;
  for (std::size_t i = 0; i < seconds.size(); ++i)
    next.emplace(static_cast<double>(shares[i] + 1) * seconds[i], i);
  for (; left > 0; --left) {
    const std::size_t i = std::get<1>(next.top());
    next.pop();
    ++shares[i];
    next.emplace(static_cast<double>(shares[i] + 1) * seconds[i], i);
  }
  for (std::int64_t& share : shares) share *= unit;
  return shares;
}

std::vector<int> cut_by_stage_times(const std::vector<std::vector<double>>& seconds) {
  const std::size_t layers = seconds.front().size() - 1;
  if (layers < seconds.size()) return {};
  double low = 0, high = 0;
  for (const std::vector<double>& sums : seconds) high = std::max(high, sums.back());
  std::vector<int> cut, best;
  for (int step = 0; step < 60; ++step) {
    const double middle = (low + high) / 2;
    if (fill(seconds, middle, &cut)) {
      high = middle;
      best = cut;
    } else {
      low = middle;
    }
  }
  if (best.empty()) fill(seconds, high, &best);
  return best;
}

}  // namespace orrery::planner
