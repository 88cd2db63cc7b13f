#include "planner/uncertainty/odds.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/random.h"

namespace orrery::planner {
namespace {

constexpr std::uint64_t kOddsSeed = 2;
// By draw, the factor that no mechanism explains of such a plan; 1 in the mean, and each draw beside its
// opposite, so that so few draws favour nobody.
std::array<double, kDraws> own_factors(const Choices& choices, double sd) {
  std::array<double, kDraws> logs{};
  const auto values = chosen(choices);
  for (std::size_t d = 0; d < kChoiceDimensions; ++d) {
    const CounterRandom random(kOddsSeed + d, values[d]);
    for (std::size_t i = 0; i < kDraws; i += 2) {
      const double log = sd / std::sqrt(static_cast<double>(kChoiceDimensions)) * random.normal(i);
      logs[i] += log;
      logs[i + 1] -= log;
    }
  }
  double sum = 0;
  for (double& log : logs) sum += log = std::exp(log);
  for (double& factor : logs) factor *= kDraws / sum;
  return logs;
}

}  // namespace

std::array<std::uint64_t, kChoiceDimensions> chosen(const Choices& c) {
  const auto both = [](auto a, auto b) {
    return static_cast<std::uint64_t>(a) * 4096 + static_cast<std::uint64_t>(b);
  };
  std::array<std::uint64_t, kChoiceDimensions> values = {
      both(c.tp, c.sequence_parallel),
      static_cast<std::uint64_t>(c.pp),
      static_cast<std::uint64_t>(c.cp),
      both(c.ep, c.overlap_experts),
      static_cast<std::uint64_t>(c.micro_batch),
      both(static_cast<int>(c.schedule), c.interleave),
      c.recompute == Recompute::selective ? 1ULL + c.recompute_modules : 0ULL,
      both(both(c.zero, c.shard_group),
           both(static_cast<int>(c.sync), static_cast<int>(c.grad_compression)))};
  for (std::size_t d = 0; d + 1 < kChoiceDimensions; ++d)
    values.back() = CounterRandom(values.back(), values[d]).bits(0);
  return values;
}

std::vector<Odds> odds_of(std::span<const Contender> contenders, const Spread& spread) {
  std::vector<std::vector<double>> steps;  // by contender and draw
  for (const Contender& contender : contenders) {
    std::vector<double>& step = steps.emplace_back(drawn_factors(contender.response, spread, /*all=*/false));
    const auto own = own_factors(contender.choices, own_of(contender.response, spread));
    for (std::size_t i = 0; i < kDraws; ++i) step[i] *= contender.step_s * own[i];
  }
  std::vector<Odds> found(contenders.size());
  double predicted_s = std::numeric_limits<double>::infinity();
  for (const Contender& contender : contenders) predicted_s = std::min(predicted_s, contender.step_s);
  for (std::size_t i = 0; i < kDraws; ++i) {
    double least = std::numeric_limits<double>::infinity();
    for (const auto& step : steps) least = std::min(least, step[i]);
    double fastest = 0;
    for (const auto& step : steps) fastest += step[i] == least ? 1 : 0;
    for (std::size_t c = 0; c < steps.size(); ++c) {
      found[c].regret_s += (steps[c][i] / least - 1) / kDraws * predicted_s;
      if (steps[c][i] == least) found[c].probability_fastest += 1 / (fastest * kDraws);
    }
  }
  return found;
}

double mean_factor(const Response& response, const Response& reference, const Spread& spread) {
  const std::vector<double> own = drawn_factors(response, spread, /*all=*/false);
  const std::vector<double> other = drawn_factors(reference, spread, /*all=*/false);
  double sum = 0;
  for (std::size_t i = 0; i < kDraws; ++i) sum += own[i] / other[i];
  return sum / kDraws;
}

}  // namespace orrery::planner
