#include "base/format.h"

#include <catch2/catch.hpp>

using namespace orrery;

TEST_CASE("sizes are binary, rates are SI") {
  CHECK(human_bytes(0) == "0.00 B");
  CHECK(human_bytes(1023) == "1023 B");
  CHECK(human_bytes(85.0e9) == "79.2 GiB");
  CHECK(human_rate(25e9) == "25.0 GB/s");
  CHECK(human_flops_rate(312e12) == "312 TFLOP/s");
  CHECK(human_count(175e9) == "175 B");
  CHECK(human_seconds(1.5) == "1.500 s");
  CHECK(human_seconds(0.0123) == "12.30 ms");
  CHECK(human_seconds(5e-6) == "5.00 us");
}
