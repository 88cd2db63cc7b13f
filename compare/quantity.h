// Seconds as people write them.
#pragma once

#include <optional>
#include <string_view>

#include "base/parse.h"

namespace orrery::comparison {

// From 0, with an optional suffix us, ms, s, min or h: "5ms", "0.005". Nothing where it is no such thing.
inline std::optional<double> parse_seconds(std::string_view text) {
  double unit = 1;
  for (const auto& [suffix, seconds] :
       {std::pair<std::string_view, double>{"us", 1e-6}, {"ms", 1e-3}, {"min", 60}, {"h", 3600}, {"s", 1}}) {
    if (!text.ends_with(suffix)) continue;
    text.remove_suffix(suffix.size());
    unit = seconds;
    break;
  }
  const std::optional<double> number = parse_number(text);
  if (!number || *number < 0) return {};
  return *number * unit;
}

}  // namespace orrery::comparison
