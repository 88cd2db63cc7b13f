// Experts' traffic of a micro-batch beside what is computed of another, as the planner sees it.
#include <algorithm>
#include <catch2/catch.hpp>

#include "base/error.h"
#include "base/random.h"
#include "planner/closed_form/estimator.h"
#include "planner/closed_form/figures.h"
#include "planner/evaluation/evaluation.h"
#include "planner/space/space.h"
#include "program/schedule.h"
#include "sim/simulator.h"
#include "tests/support/closed_form.h"
#include "tests/support/jobs.h"

namespace orrery::planner {
namespace {

using test::make_job;

TEST_CASE("of overlapped experts the bound is never above the simulated step, and the estimate is near it") {
  const auto job = make_job("mixtral-8x7b", "dgx-h100", 16, 64, 2048);
  Pins pins;
  pins.overlap_experts = true;
  std::vector<Plan> plans;
  const std::vector<Choices> space = enumerate(job, pins);
  REQUIRE_FALSE(space.empty());
  const CounterRandom random(4, 1);
  for (int i = 0; i < 24; ++i) plans.push_back({job, space[random.bits(i) % space.size()]});
  test::check_closed_form(plans);
}

TEST_CASE("experts' tokens travel while another micro-batch computes, and take multiprocessors from it") {
  const auto job = make_job("qwen3-30b-a3b", "dgx-h100", 16, 128, 4096);
  job->runtime.expert_exposed = 1;
  for (const bool interleaved : {false, true}) {
    Choices c;
    c.pp = interleaved ? 2 : 1;
    c.dp = 16 / c.pp;
    c.ep = c.dp;
    c.zero = 1;
    if (interleaved) {
      c.schedule = Schedule::interleaved;
      c.interleave = 2;
    }
    const sim::Simulation apart = sim::simulate({job, c});
    c.overlap_experts = true;
    const Plan plan{job, c};
    check_plan(plan);
    const sim::Simulation beside = sim::simulate(plan);
    CAPTURE(interleaved, apart.step_time_s, beside.step_time_s, apart.breakdown.expert_comm);
    CHECK(beside.breakdown.expert_comm < 0.5 * apart.breakdown.expert_comm);
    CHECK(beside.breakdown.compute > apart.breakdown.compute);
    CHECK(beside.step_time_s < apart.step_time_s);
    CHECK(Estimator(job).times(c).estimate_s == Approx(beside.step_time_s).epsilon(0.06));
    // One more micro-batch's activations wait.
    CHECK(peak_in_flight(c.schedule, 0, c.pp, c.interleave, 16, true) ==
          peak_in_flight(c.schedule, 0, c.pp, c.interleave, 16) + 1);
    Choices one_after_another = c;
    one_after_another.overlap_experts = false;
    CHECK(predict_memory(plan).activations > predict_memory({job, one_after_another}).activations);
  }
}

TEST_CASE(
    "a router that favours experts makes a step longer by the fullest rank's rows, in both clocks alike") {
  const auto job = make_job("mixtral-8x7b", "dgx-h100", 8, 64, 2048);
  Choices c;
  c.dp = 8;
  c.ep = 4;
  c.zero = 1;
  const double even_s = sim::simulate({job, c}).step_time_s;
  job->runtime.expert_spread = 0.4;
  const sim::Simulation uneven = sim::simulate({job, c});
  CHECK(uneven.step_time_s > 1.2 * even_s);
  CHECK(uneven.step_time_s < 2 * even_s);
  CHECK(Estimator(job).times(c).estimate_s == Approx(uneven.step_time_s).epsilon(0.03));
  test::check_closed_form({{job, c}});
}

TEST_CASE("experts' overlap is searched where the runtime can, without recomputing whole layers") {
  const auto job = make_job("mixtral-8x7b", "dgx-h100", 16, 64, 2048);
  REQUIRE(job->runtime.overlaps_experts);
  Pins pins;
  pins.tp = 1;
  pins.micro_batch = 1;
  pins.zero = 1;
  pins.bucket_bytes = 1e9;
  const std::vector<Choices> space = enumerate(job, pins);
  const auto overlapped = [](const Choices& c) { return c.overlap_experts; };
  CHECK(std::any_of(space.begin(), space.end(), overlapped));
  for (const Choices& c : space) {
    if (!overlapped(c)) continue;
    CHECK(c.ep > 1);
    CHECK(c.recompute != Recompute::full);
    CHECK((c.pp == 1 || c.schedule == Schedule::interleaved));
  }
  job->runtime.overlaps_experts = false;
  const std::vector<Choices> without = enumerate(job, pins);
  CHECK(std::none_of(without.begin(), without.end(), overlapped));
  pins.overlap_experts = true;
  pins.schedule = Schedule::gpipe;
  pins.pp = 2;
  CHECK_THROWS_AS(enumerate(job, pins), UserError);
}

}  // namespace
}  // namespace orrery::planner
