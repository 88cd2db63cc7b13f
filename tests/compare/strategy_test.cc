#include "compare/strategy.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "base/error.h"
#include "compare/way.h"

namespace orrery::comparison {
namespace {

TEST_CASE("an unknown strategy is refused with the list of those that are known") {
  try {
    parse_strategies("ddp,hovorod");
    FAIL("it was taken");
  } catch (const UserError& error) {
    const std::string text = error.what();
    CHECK(text.find("'hovorod' is unknown") != std::string::npos);
    for (const Strategy& strategy : known_strategies()) CHECK(text.find(strategy.name) != std::string::npos);
  }
}

TEST_CASE("settings are a strategy's own") {
  const Strategy horovod = parse_strategies("horovod:cycle=5ms:bucket=64M").front();
  CHECK(horovod.mechanics.cycle_s == Approx(0.005));
  CHECK(horovod.mechanics.bucket_bytes == 64.0 * (1 << 20));
  CHECK_THROWS_AS(parse_strategies("ddp:cycle=5ms"), UserError);
  CHECK_THROWS_AS(parse_strategies("horovod:cycle=-1"), UserError);
  CHECK_THROWS_AS(parse_strategies("ps-bounded:staleness=x"), UserError);
  CHECK_THROWS_AS(parse_strategies("mirrored:overlap"), UserError);
  CHECK_THROWS_AS(parse_strategies("ddp,ddp"), UserError);
  CHECK_THROWS_AS(parse_strategies(""), UserError);
  CHECK(parse_strategies("ddp,ddp:bucket=1M").size() == 2);
}

TEST_CASE("names are unique, and the defaults are ten of them") {
  std::vector<std::string> names;
  for (const Strategy& strategy : known_strategies()) names.push_back(strategy.name);
  std::sort(names.begin(), names.end());
  CHECK(std::adjacent_find(names.begin(), names.end()) == names.end());
  CHECK(default_strategies().size() == 10);
}

TEST_CASE("a cycle joins what became ready in it") {
  // 100 MB in 50 ms of backward pass: 2 MB a millisecond.
  CHECK(joined_bytes(100e6, 0.05, 0.001, 128e6) == Approx(2e6));
  CHECK(joined_bytes(100e6, 0.05, 0.005, 4e6) == Approx(4e6));
  CHECK(joined_bytes(100e6, 0.05, 0.5, 128e6) == Approx(100e6));
  CHECK(joined_bytes(100e6, 0.05, 0.001, 0) == 1);  // no fusion
}

TEST_CASE("what a member of a collective sends") {
  CHECK(sent_bytes(CollectiveKind::all_reduce, 100, 4) == Approx(150));
  CHECK(sent_bytes(CollectiveKind::all_gather, 100, 4) == Approx(75));
  CHECK(sent_bytes(CollectiveKind::gather, 100, 4) == Approx(18.75));  // three of four send a quarter
  CHECK(sent_bytes(CollectiveKind::all_reduce, 100, 1) == 0);
}

}  // namespace
}  // namespace orrery::comparison
