// How uncertain the factors of a job are, and what that rests on: whether evidence names its runtime, device
// and network (planner/uncertainty/spread.textproto, written by evidence/fits/fit_factors).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "planner/uncertainty/factors.h"

namespace orrery::planner {

// How well something is known, best first.
enum class Basis : std::uint8_t { calibrated, fitted, datasheet, assumed };
std::string_view name_of(Basis basis);

struct RestsOn {
  Basis runtime = Basis::assumed, device = Basis::assumed, network = Basis::assumed;
};

// Standard deviations of natural logarithms.
struct Spread {
  std::array<double, kFactors> factor{};
  double site = 0;  // of all that runs on one cluster, alike
  double own = 0;   // of this model and row, beside
  double memory = 0;
  RestsOn rests_on;
};

Spread spread_of(const Job& job);

}  // namespace orrery::planner
