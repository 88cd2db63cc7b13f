#include "compare/balance.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <queue>

#include "base/enum_names.h"
#include "base/statistics.h"
#include "planner/closed_form/load_balancing.h"

namespace orrery::comparison {
namespace {

constexpr std::array<std::string_view, 4> kNames = {"even", "by-speed", "dynamic", "stealing"};

BalanceStep described(std::vector<std::int64_t> samples, std::vector<double> busy_s) {
  const Spread spread = spread_of(busy_s);
  return {std::move(samples), std::move(busy_s), spread.std_s, spread.max_over_mean, spread.longest_s};
}

// Seconds of a sample of each worker in this step, begun at `now`.
std::vector<double> speeds_of(const std::vector<double>& sample_s, std::int64_t each, std::int64_t step,
                              double now, Disturbance& disturbance) {
  std::vector<double> seen;
  for (std::size_t w = 0; w < sample_s.size(); ++w) {
    const double work_s = sample_s[w] * static_cast<double>(each);
    seen.push_back((disturbance.end_of(static_cast<int>(w), step, now, work_s) - now) /
                   static_cast<double>(each));
  }
  return seen;
}

// Pieces to whoever is free first.
std::vector<std::int64_t> stolen(const std::vector<double>& seen, std::int64_t samples, std::int64_t piece) {
  using Free = std::pair<double, std::size_t>;
  std::priority_queue<Free, std::vector<Free>, std::greater<>> free;
  for (std::size_t w = 0; w < seen.size(); ++w) free.emplace(0, w);
  std::vector<std::int64_t> taken(seen.size(), 0);
  while (samples > 0) {
    const auto [when, w] = free.top();
    free.pop();
    const std::int64_t some = std::min(piece, samples);
    taken[w] += some;
    samples -= some;
    free.emplace(when + seen[w] * static_cast<double>(some), w);
  }
  return taken;
}

}  // namespace

std::string_view name_of(Shares shares) {
  return name_in(kNames, shares);
}

Spread spread_of(const std::vector<double>& busy_s) {
  Spread spread;
  const double mean_s = mean(busy_s);
  double squares = 0;
  for (const double busy : busy_s) {
    squares += (busy - mean_s) * (busy - mean_s);
    spread.longest_s = std::max(spread.longest_s, busy);
  }
  spread.std_s = std::sqrt(squares / static_cast<double>(busy_s.size()));
  spread.max_over_mean = mean_s > 0 ? spread.longest_s / mean_s : 1;
  return spread;
}

Balance balance(Shares shares, const std::vector<double>& sample_s, std::int64_t samples, std::int64_t piece,
                int steps, const std::vector<Trouble>& troubles, std::uint64_t seed) {
  Balance result;
  result.shares = shares;
  Disturbance disturbance(troubles, seed);
  const auto workers = static_cast<std::int64_t>(sample_s.size());
  const std::vector<std::int64_t> even(sample_s.size(), samples / workers);
  std::vector<double> known;
  double now = 0;
  for (int step = 0; step < steps; ++step) {
    const std::vector<double> seen = speeds_of(sample_s, samples / workers, step, now, disturbance);
    std::vector<std::int64_t> dealt = even;
    if (shares == Shares::stealing) {
      dealt = stolen(seen, samples, piece);
    } else if (shares != Shares::even && !known.empty()) {
      const auto shared = planner::balanced_shares(known, samples, piece);
      if (!shared.empty()) dealt = shared;
    }
    std::vector<double> busy_s;
    for (std::size_t w = 0; w < sample_s.size(); ++w)
      busy_s.push_back(seen[w] * static_cast<double>(dealt[w]));
    result.steps.push_back(described(std::move(dealt), std::move(busy_s)));
    now += result.steps.back().longest_s;
    if (known.empty() || shares == Shares::dynamic) known = seen;
  }
  result.std_s = mean_behind_first(result.steps, &BalanceStep::std_s);
  result.max_over_mean = mean_behind_first(result.steps, &BalanceStep::max_over_mean);
  result.longest_s = mean_behind_first(result.steps, &BalanceStep::longest_s);
  return result;
}

}  // namespace orrery::comparison
