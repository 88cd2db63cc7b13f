// How much of a long grid a test walks: all of it, but with ORRERY_SHORT set (test.sh: in CI, where time is
// counted) a part that still has every kind of what is in it.
#pragma once

#include <cstddef>
#include <cstdlib>

namespace orrery {

inline bool walks_all() {
  return std::getenv("ORRERY_SHORT") == nullptr;
}

// Whether the grid's point of this number is walked: each is, or every `nth`.
inline bool walked(std::size_t point, std::size_t nth) {
  return point % nth == 0 || walks_all();
}

}  // namespace orrery
