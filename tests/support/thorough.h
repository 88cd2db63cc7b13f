// How much of a long grid a test walks: all of it, but with CI=true, where time is counted, a part that still
// has every kind of what is in it. test.sh and scripts/long.sh by hand walk everything.
#pragma once

#include <cstdlib>
#include <string_view>

namespace orrery {

inline bool thorough() {
  const auto is = [](const char* name, std::string_view value) {
    const char* set = std::getenv(name);
    return set != nullptr && set == value;
  };
  return !is("CI", "true") || is("SANITIZE", "all");
}

}  // namespace orrery
