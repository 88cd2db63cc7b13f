// The host as a stream of its own: launches beside the device, in the simulator as in the closed form.
#include <catch2/catch.hpp>
#include <cmath>

#include "cost/compute_cost.h"
#include "planner/evaluation/evaluation.h"
#include "program/lower/lowering.h"
#include "sim/simulator.h"
#include "tests/support/jobs.h"

using namespace orrery;

namespace {

struct Case {
  int tp = 1, pp = 1, dp = 1;
};

Plan plan_of(const Case& c, double launch_s, bool synchronous) {
  const auto job = test::make_job("gpt2", "dgx-a100", c.tp * c.pp * c.dp, 8 * c.dp, 1024, "megatron-lm-2022");
  job->runtime.kernel_launch_s = launch_s;
  job->runtime.synchronous_passes = synchronous;
  job->runtime.overlap_pipeline = !synchronous;
  job->runtime.clip_gradients = false;
  Plan plan{job, {}};
  plan.choices.tp = c.tp;
  plan.choices.pp = c.pp;
  plan.choices.dp = c.dp;
  plan.choices.micro_batch = 2;
  plan.choices.recompute = Recompute::full;
  return plan;
}

double host_s(const Plan& plan) {
  const ComputeCost cost(plan, plan.job->cluster.profiles[0]);
  double seconds = 0;
  for (const Instruction& i : lower(plan, 0).instructions) seconds += cost.host_seconds(i);
  return seconds;
}

}  // namespace

TEST_CASE("a step that launches bind takes what the host takes, and hides its collectives") {
  for (const Case& c : {Case{1, 1, 1}, Case{4, 1, 1}}) {
    const Plan plan = plan_of(c, 1e-3, false);
    CHECK(sim::simulate(plan).step_time_s == Approx(host_s(plan)).epsilon(0.01));
    CHECK(planner::estimate_step_seconds(plan) == Approx(host_s(plan)).epsilon(0.01));
  }
}

TEST_CASE("a host that is fast enough costs nothing but its start") {
  const Plan free = plan_of({2, 1, 2}, 1e-12, false);
  const Plan fast = plan_of({2, 1, 2}, 1e-7, false);
  CHECK(sim::simulate(fast).step_time_s == Approx(sim::simulate(free).step_time_s).epsilon(1e-3));
}

TEST_CASE("simulator and closed form agree whether host or device is the slower") {
  for (const bool synchronous : {false, true})
    for (const double launch_s : {1e-6, 2e-5, 5e-5, 2e-4})
      for (const Case& c : {Case{1, 1, 1}, Case{2, 1, 2}, Case{1, 4, 1}, Case{2, 2, 2}}) {
        const Plan plan = plan_of(c, launch_s, synchronous);
        const double simulated = sim::simulate(plan).step_time_s;
        INFO("launch " << launch_s << " tp " << c.tp << " pp " << c.pp << " dp " << c.dp
                       << (synchronous ? " synchronous" : ""));
        CHECK(planner::estimate_step_seconds(plan) == Approx(simulated).epsilon(0.05));
      }
}

TEST_CASE("a host that waits for every pass is never faster") {
  for (const double launch_s : {1e-6, 5e-5, 1e-3}) {
    const double ahead = sim::simulate(plan_of({1, 1, 1}, launch_s, false)).step_time_s;
    const double waits = sim::simulate(plan_of({1, 1, 1}, launch_s, true)).step_time_s;
    CHECK(waits >= ahead * (1 - 1e-9));
  }
}
