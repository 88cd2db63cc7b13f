// Experts that tensor ranks share, as the planner sees them.
#include <algorithm>
#include <catch2/catch.hpp>

#include "base/error.h"
#include "base/random.h"
#include "planner/closed_form/estimator.h"
#include "planner/evaluation/evaluation.h"
#include "planner/space/space.h"
#include "program/placement.h"
#include "sim/simulator.h"
#include "tests/support/closed_form.h"
#include "tests/support/jobs.h"

namespace orrery::planner {
namespace {

using test::make_job;

TEST_CASE("with shared experts the bound is never above the simulated step, and the estimate is near it") {
  const auto job = make_job("mixtral-8x7b", "dgx-h100", 16, 16, 2048);
  std::vector<Plan> plans;
  for (const int etp : {2, 4}) {
    Pins pins;
    pins.etp = etp;
    const std::vector<Choices> space = enumerate(job, pins);
    const CounterRandom random(4, static_cast<std::uint64_t>(etp));
    for (int i = 0; i < 12; ++i) plans.push_back({job, space[random.bits(i) % space.size()]});
  }
  test::check_closed_form(plans);
}

TEST_CASE(
    "a pinned etp keeps tensor parallelism to its multiples, and experts to places with tokens of their "
    "own") {
  const auto job = make_job("mixtral-8x7b", "dgx-h100", 16, 16, 2048);
  Pins pins;
  pins.etp = 2;
  pins.micro_batch = 1;
  pins.zero = 1;
  pins.recompute = Recompute::none;
  const std::vector<Choices> space = enumerate(job, pins);
  REQUIRE_FALSE(space.empty());
  for (const Choices& c : space) {
    CHECK(c.etp == 2);
    CHECK(c.tp % 2 == 0);
    CHECK((c.dp * c.cp * (c.sequence_parallel ? c.tp / 2 : 1)) % c.ep == 0);
  }
  CHECK(std::any_of(space.begin(), space.end(), [](const Choices& c) { return c.ep == 8; }));
  CHECK_THROWS_AS(enumerate(make_job("llama3-8b", "dgx-h100", 16, 16, 2048), pins), UserError);
}

TEST_CASE("of shared experts a device holds its part") {
  const auto job = make_job("mixtral-8x7b", "dgx-h100", 16, 16, 2048);
  Choices choices;
  choices.tp = 4;
  choices.dp = 4;
  choices.ep = 4;
  choices.zero = 1;
  choices.sequence_parallel = true;
  const auto weights = [&](int etp) {
    choices.etp = etp;
    return predict_memory({job, choices}).weights;
  };
  // 32 layers of 8 / 4 experts of three matrices of 4096 x 14336 in bf16.
  const double experts = 32.0 * 2 * 3 * 4096 * 14336 * 2;
  CHECK(weights(1) - weights(2) == Approx(experts / 2));
  CHECK(weights(2) - weights(4) == Approx(experts / 4));
  // Their optimizer's states are shared by fewer: 16, 8 and 4 places for 4 parts.
  const auto states = [&](int etp) {
    choices.etp = etp;
    return predict_memory({job, choices}).optimizer;
  };
  CHECK(states(2) == Approx(states(1)));
  CHECK(states(4) == Approx(states(1)));
}

}  // namespace
}  // namespace orrery::planner
