#include "topologies/readers/simgrid_units.h"

#include <array>
#include <charconv>
#include <cmath>
#include <string>
#include <utility>

namespace orrery {
namespace {

struct Scale {
  std::string_view unit;
  double factor;
};

constexpr std::array<Scale, 9> kTimes = {{{"w", 604800},
                                          {"d", 86400},
                                          {"h", 3600},
                                          {"m", 60},
                                          {"s", 1},
                                          {"ms", 1e-3},
                                          {"us", 1e-6},
                                          {"ns", 1e-9},
                                          {"ps", 1e-12}}};

std::optional<double> time_factor(std::string_view unit) {
  for (const Scale& time : kTimes) {
    if (unit == time.unit) return time.factor;
  }
  return std::nullopt;
}

// A prefix of a power of 1000 ("k", "M") or, with an i, of 1024 ("Ki"); 1 where there is none.
std::optional<double> prefix_factor(std::string_view prefix) {
  constexpr std::string_view kLetters = "kMGTPEZY";
  if (prefix.empty()) return 1;
  const bool binary = prefix.size() == 2 && prefix[1] == 'i';
  if (prefix.size() != (binary ? 2U : 1U)) return std::nullopt;
  const char letter = prefix[0] == 'K' ? 'k' : prefix[0];
  const std::size_t power = kLetters.find(letter);
  if (power == std::string_view::npos) return std::nullopt;
  return std::pow(binary ? 1024.0 : 1000.0, static_cast<double>(power + 1));
}

std::optional<double> suffixed_factor(std::string_view unit, std::string_view suffix, double factor) {
  if (unit.size() < suffix.size() || unit.substr(unit.size() - suffix.size()) != suffix) return std::nullopt;
  const auto prefix = prefix_factor(unit.substr(0, unit.size() - suffix.size()));
  if (!prefix) return std::nullopt;
  return *prefix * factor;
}

std::optional<double> factor_of(std::string_view suffix, SimgridUnit unit) {
  switch (unit) {
    case SimgridUnit::seconds:
      return time_factor(suffix);
    case SimgridUnit::bytes_per_s:
      if (const auto bytes = suffixed_factor(suffix, "Bps", 1)) return bytes;
      return suffixed_factor(suffix, "bps", 1.0 / 8);
    case SimgridUnit::flops_per_s:
      if (const auto flops = suffixed_factor(suffix, "flops", 1)) return flops;
      return suffixed_factor(suffix, "f", 1);
  }
  return std::nullopt;
}

}  // namespace

std::optional<double> simgrid_number(std::string_view text, SimgridUnit unit) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || !std::isfinite(value) || value < 0) return std::nullopt;
  const std::string_view suffix = text.substr(static_cast<std::size_t>(end - text.data()));
  if (suffix.empty()) return value;
  const auto factor = factor_of(suffix, unit);
  if (!factor || !std::isfinite(value * *factor)) return std::nullopt;
  return value * *factor;
}

}  // namespace orrery
