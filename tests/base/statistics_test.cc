#include "base/statistics.h"

#include <catch2/catch.hpp>

namespace orrery {

TEST_CASE("a mean is the sum over the count") {
  CHECK(mean({}) == 0);
  CHECK(mean({3}) == 3);
  CHECK(mean({9, 1, 4, 2}) == 4);
}

TEST_CASE("a median is the middle, or of two in the middle their mean or the larger") {
  CHECK(median({}) == 0);
  CHECK(upper_median({}) == 0);
  CHECK(median({3}) == 3);
  CHECK(upper_median({3}) == 3);
  CHECK(median({9, 1, 4}) == 4);
  CHECK(upper_median({9, 1, 4}) == 4);
  CHECK(median({9, 1, 4, 2}) == 3);
  CHECK(upper_median({9, 1, 4, 2}) == 4);
}

}  // namespace orrery
