#include "program/measured/plans_alike.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "planner/search/search.h"
#include "tests/support/jobs.h"

namespace orrery::planner {

TEST_CASE("a plan that was measured to be faster than mechanisms say comes before one that was not") {
  auto job = test::make_job("llama3-8b", "dgx-h100", 16, 64, 4096);
  Pins pins;
  SearchOptions options;
  options.top = 8;
  const SearchResult before = search(job, pins, options);
  const auto other = std::find_if(before.plans.begin(), before.plans.end(), [&](const Evaluation& one) {
    return correlation(as_measured(*job, one.plan.choices),
                       as_measured(*job, before.plans.front().plan.choices)) < 0.9;
  });
  REQUIRE(other != before.plans.end());
  const double gain = 0.1 + std::log(other->step_time_s() / before.plans.front().step_time_s());

  SiteCalibration calibration;
  calibration.runtime = job->runtime.name;
  calibration.steps = 2;
  calibration.effects = {"site", "plans alike, part 1", "plans alike, part 2"};
  const std::vector<MeasuredPlan> plans = {as_measured(*job, before.plans.front().plan.choices),
                                           as_measured(*job, other->plan.choices)};
  const double shared = correlation(plans[0], plans[1]);
  const double rest = std::sqrt(1 - shared * shared);
  calibration.mean = {0, 0, -gain / rest};  // the first plan as predicted
  calibration.covariance = {1e-4, 0, 1e-4, 0, 0, 1e-4};
  calibration.plans = plans;
  calibration.alike_sd = 0.2;
  calibration.own_sd = 0.05;
  auto measured = std::make_shared<Job>(*job);
  measured->cluster.calibration = calibration;
  const SearchResult after = search(measured, pins, options);
  const Evaluation& best = after.plans.front();
  CHECK(corrected_by(best.plan).times < 1);
  CHECK(best.step_time_s() < before.plans.front().step_time_s());
  CHECK(best.estimate_s / best.step_time_s() == Approx(1).epsilon(0.2));
  double parts_s = 0;
  for (const auto& [name, seconds] : parts_of(best.simulation->breakdown)) parts_s += seconds;
  CHECK(parts_s == Approx(best.step_time_s()));
  for (const Evaluation& one : after.plans) {
    REQUIRE(one.interval);
    CHECK(one.interval->step_time_s.low < one.step_time_s());
    CHECK(one.interval->step_time_s.high > one.step_time_s());
    if (one.plan.choices == before.plans.front().plan.choices)
      CHECK(one.step_time_s() == Approx(before.plans.front().step_time_s()));
  }
}

}  // namespace orrery::planner
