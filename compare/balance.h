// A step's samples dealt among workers of different and changing speeds: who is busy for how long, step by
// step.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "compare/trouble.h"

namespace orrery::comparison {

enum class Shares : std::uint8_t {
  even,      // as many for each
  by_speed,  // by what each was seen to take in the first step, for good
  dynamic,   // by what each was seen to take in the step before
  stealing,  // dealt piece by piece to whoever is free
};
inline constexpr std::array kShares = {Shares::even, Shares::by_speed, Shares::dynamic, Shares::stealing};
std::string_view name_of(Shares shares);

struct Spread {
  double std_s = 0;  // of the population
  double max_over_mean = 0;
  double longest_s = 0;
};
Spread spread_of(const std::vector<double>& busy_s);

// The mean of a figure over the steps behind the first, in which nothing is known yet; of one step, of that.
template <typename Step>
double mean_behind_first(const std::vector<Step>& steps, double Step::*figure) {
  const std::size_t first = steps.size() > 1 ? 1 : 0;
  double sum = 0;
  for (std::size_t step = first; step < steps.size(); ++step) sum += steps[step].*figure;
  return steps.empty() ? 0 : sum / static_cast<double>(steps.size() - first);
}

struct BalanceStep {
  std::vector<std::int64_t> samples;  // of each worker
  std::vector<double> busy_s;
  double std_s = 0;  // of busy_s, of the population
  double max_over_mean = 0;
  double longest_s = 0;
};
struct Balance {
  Shares shares = Shares::even;
  std::vector<BalanceStep> steps;
  // Means over the steps behind the first, which all deal evenly but `stealing`.
  double std_s = 0, max_over_mean = 0, longest_s = 0;
};

// `sample_s`: of a sample, by worker, undisturbed; `piece`: samples that are dealt together.
Balance balance(Shares shares, const std::vector<double>& sample_s, std::int64_t samples, std::int64_t piece,
                int steps, const std::vector<Trouble>& troubles, std::uint64_t seed);

}  // namespace orrery::comparison
