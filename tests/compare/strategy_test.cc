#include "compare/strategy.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "base/error.h"
#include "compare/negotiation.h"
#include "compare/way.h"

namespace orrery::comparison {
namespace {

TEST_CASE("an unknown strategy is refused with the nearest, else the list of those that are known") {
  CHECK_THROWS_WITH(parse_strategies("ddp,hovorod"),
                    Catch::Contains("'hovorod' is unknown") && Catch::Contains("did you mean 'horovod'?"));
  try {
    parse_strategies("ddp,quorum");
    FAIL("it was taken");
  } catch (const UserError& error) {
    const std::string text = error.what();
    CHECK(text.find("'quorum' is unknown") != std::string::npos);
    for (const Strategy& strategy : known_strategies()) CHECK(text.find(strategy.name) != std::string::npos);
  }
}

TEST_CASE("settings are a strategy's own") {
  const Strategy horovod = parse_strategies("horovod:cycle=5ms:bucket=64M").front();
  CHECK(horovod.mechanics.cycle_s == Approx(0.005));
  CHECK(horovod.mechanics.bucket_bytes == 64.0 * (1 << 20));
  CHECK_THROWS_AS(parse_strategies("ddp:cycle=5ms"), UserError);
  CHECK_THROWS_AS(parse_strategies("horovod:cycle=-1"), UserError);
  // HOROVOD_CYCLE_TIME=5 is 5 ms: what a bare number means is not guessed.
  CHECK_THROWS_WITH(parse_strategies("horovod:cycle=5"), Catch::Contains("with its unit, as 5ms"));
  CHECK(parse_strategies("horovod:cycle=0").front().mechanics.cycle_s == 0);
  CHECK_THROWS_AS(parse_strategies("ps-bounded:staleness=x"), UserError);
  CHECK_THROWS_AS(parse_strategies("horovod:predivide=0"), UserError);
  CHECK_THROWS_AS(parse_strategies("ps-async:dispatch=soon"), UserError);
  CHECK(parse_strategies("horovod:algorithm=hierarchical").front().mechanics.in_groups);
  CHECK_FALSE(parse_strategies("horovod:cache=off").front().mechanics.response_cache);
  CHECK(parse_strategies("ps-sync:call=50us:dispatch=1ms").front().mechanics.call_s == Approx(50e-6));
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

TEST_CASE("the response cache replaces a request a tensor by a bit a tensor") {
  // 16 workers are four levels. Up and down them in 10 us a hop: 80 us.
  Talk talk{16, 10e-6, 1e9, 30};
  // Requests of 30 tensors, 3,000 bytes: 15 workers' go into the coordinator, and answers down four levels.
  CHECK(negotiation_s(talk, false) == Approx(80e-6 + 19 * 3000 / 1e9));
  CHECK(negotiation_s(talk, true) == Approx(80e-6 + 8 * 128 / 1e9));
  talk.workers = 1;
  CHECK(negotiation_s(talk, false) == 0);
}

TEST_CASE("a master's queue lengthens a step by its workers' turns, or bounds them all") {
  CHECK(handed_step_s(Rendezvous::all, 1.5, 4, 0.1) == Approx(1.9));
  CHECK(handed_step_s(Rendezvous::nobody, 1.5, 4, 0.1) == Approx(1.6));  // in which four steps are done
  CHECK(handed_step_s(Rendezvous::nobody, 1.5, 4, 0.5) == Approx(2.0));
  CHECK(handed_step_s(Rendezvous::all, 1.5, 1, 0.5) == 1.5);
}

}  // namespace
}  // namespace orrery::comparison
