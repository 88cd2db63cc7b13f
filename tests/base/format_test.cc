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

TEST_CASE("how long a run takes is said in the largest unit of which there are two") {
  CHECK(human_change(1.02, 1) == "+2.0%");
  CHECK(human_change(0.5, 1) == "-50.0%");
  CHECK(human_change(9.994, 1) == "+899.4%");
  CHECK(human_change(160.7, 1) == "161 times");
  CHECK(human_change(1, 0) == "");
  CHECK(human_duration(63.85 * 86400) == "63.85 days");
  CHECK(human_duration(47.9 * 3600) == "47.90 hours");
  CHECK(human_duration(119 * 60) == "119.0 min");
  CHECK(human_duration(90) == "90.00 s");
  CHECK(human_duration(0.062) == "62.00 ms");
  CHECK(human_duration(0) == "0 s");
}

TEST_CASE("one of a thing is counted in the singular") {
  CHECK(orrery::counted(1, "node") == "1 node");
  CHECK(orrery::counted(0, "spare node") == "0 spare nodes");
  CHECK(orrery::counted(3072, "device") == "3,072 devices");
}
