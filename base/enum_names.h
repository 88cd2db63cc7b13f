// Names of an enumeration's values, as people write them, in an array by value.
#pragma once

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <string_view>

#include "base/error.h"
#include "base/suggest.h"

namespace orrery {

template <typename Enum, std::size_t N>
std::string_view name_in(const std::array<std::string_view, N>& names, Enum value) {
  return names.at(static_cast<std::size_t>(value));
}

// Throws UserError naming `what` is unknown and what is near, or all that is known.
template <typename Enum, std::size_t N>
Enum value_in(const std::array<std::string_view, N>& names, std::string_view name, std::string_view what) {
  for (std::size_t i = 0; i < N; ++i)
    if (names[i] == name) return static_cast<Enum>(i);
  throw UserError(fmt::format("unknown {} '{}'", what, name), suggestion(name, {names.begin(), names.end()}));
}

}  // namespace orrery
