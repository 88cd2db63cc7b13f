#include "planner/search/fewer_devices.h"

#include <catch2/catch.hpp>

#include "tests/support/jobs.h"

namespace orrery::planner {
namespace {

using test::make_job;

int fewer(const std::string& cluster, int devices, int batch, const Pins& pins = {}) {
  const auto part = fewer_devices(*make_job("gpt2", cluster, devices, batch, 1024), pins);
  return part ? part->devices() : 0;
}

TEST_CASE("a count of nodes that divides badly has a smaller one beside it") {
  CHECK(fewer("dgx-h100", 800, 1024) == 768);
  CHECK(fewer("dgx-h100", 40, 1024) == 32);
  CHECK(fewer("dgx-h100", 7, 64) == 6);
  for (const int devices : {1, 8, 24, 64, 96, 256}) CHECK(fewer("dgx-h100", devices, 1024) == 0);
  // 24 samples on 64 devices, of which 24 have one each; 32 and 8 samples have whole numbers of devices.
  CHECK(fewer("dgx-h100", 64, 24) == 24);
  CHECK(fewer("dgx-h100", 64, 32) == 0);
  CHECK(fewer("dgx-h100", 64, 8) == 0);
  CHECK(fewer("gb200-nvl72", 72, 1024) == 64);
  CHECK(fewer("gb200-nvl72", 576, 1024) == 512);  // 64 of each rack's 72
  CHECK(fewer("gb200-nvl72", 512, 1024) == 0);
  Pins pins;
  pins.dp = 100;
  CHECK(fewer("dgx-h100", 800, 1000, pins) == 0);
}

TEST_CASE("fewer devices that are as fast are said with the answer, and no others") {
  SearchOptions options;
  options.top = 1;
  const auto said = [&](int devices, int batch) {
    return planner::search(make_job("gpt2-xl", "a100-eth100", devices, batch, 1024, "typical"), {}, options);
  };
  const SearchResult many = said(64, 24);
  REQUIRE(many.fewer);
  CHECK(many.fewer->best->step_time_s() < 1.01 * many.plans.front().step_time_s());
  CHECK_THAT(many.why, Catch::Contains("24 of these 64 devices"));
  const SearchResult odd = said(7, 28);  // 7 stages; 6 have no even share of 28
  CHECK(odd.fewer.has_value() == !odd.why_fewer.empty());
  if (odd.fewer) CHECK(odd.fewer->best->step_time_s() < 1.01 * odd.plans.front().step_time_s());
  CHECK_FALSE(said(8, 32).fewer);
}

}  // namespace
}  // namespace orrery::planner
