#include "planner/uncertainty/outlook.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <set>

#include "planner/closed_form/figures.h"
#include "planner/evaluation/interval.h"
#include "tests/support/jobs.h"

namespace orrery::planner {
namespace {

Choices spread_over(int tp, int pp, int dp) {
  Choices c;
  c.tp = tp;
  c.pp = pp;
  c.dp = dp;
  c.sequence_parallel = tp > 1;
  return c;
}

Spread of_some_size() {
  Spread spread;
  spread.factor.fill(0.15);
  return spread;
}

// The range by `kDraws` whole closed forms.
Range exact_range(const Job& job, const Choices& choices, const Spread& spread) {
  std::vector<double> factors;
  const double nominal = estimate_step_seconds({std::make_shared<Job>(job), choices});
  for (int i = 0; i < kDraws; ++i) {
    World world;
    for (int f = 0; f < kFactors; ++f)
      world.log_time[static_cast<std::size_t>(f)] = spread.factor[static_cast<std::size_t>(f)] * draw(f, i);
    factors.push_back(estimate_step_seconds({job_in(world, job), choices}) / nominal);
  }
  std::sort(factors.begin(), factors.end());
  return {factors[13], factors[kDraws - 13]};
}

}  // namespace

TEST_CASE("draws of a factor are one of each of 256 equally likely slices of a normal") {
  for (int dimension = 0; dimension < kFactors; ++dimension) {
    std::set<double> all;
    double sum = 0, squares = 0;
    for (int i = 0; i < kDraws; ++i) {
      const double z = draw(dimension, i);
      all.insert(z);
      sum += z;
      squares += z * z;
    }
    CHECK(all.size() == kDraws);
    CHECK(sum / kDraws == Approx(0).margin(1e-9));
    CHECK(squares / kDraws == Approx(1).epsilon(0.02));
  }
  CHECK(draw(0, 0) != draw(1, 0));
}

TEST_CASE("a world in which nothing is different takes as long, and one with a slower part no less") {
  const auto job = test::make_job("llama2-7b", "dgx-a100", 16, 64, 2048);
  const Choices c = spread_over(2, 2, 4);
  const double nominal = estimate_step_seconds({job, c});
  CHECK(estimate_step_seconds({job_in({}, *job), c}) == nominal);
  for (const Factor factor : kAllFactors) {
    World world;
    world[factor] = 0.3;
    INFO(name_of(factor));
    CHECK(estimate_step_seconds({job_in(world, *job), c}) >= nominal * (1 - 1e-12));
    CHECK(factor_from_name(name_of(factor)) == factor);
  }
}

TEST_CASE("the interval of parabolas is that of as many whole closed forms") {
  struct Case {
    const char* workload;
    const char* cluster;
    int devices;
    Choices choices;
  };
  for (const Case& c : {Case{"llama2-7b", "dgx-a100", 16, spread_over(2, 2, 4)},
                        Case{"llama2-7b", "dgx-h100", 64, spread_over(1, 1, 64)},
                        Case{"gpt3-175b", "dgx-a100", 128, spread_over(8, 8, 2)}}) {
    const auto job = test::make_job(c.workload, c.cluster, c.devices, 256, 2048);
    Outlook outlook(job);
    const Spread spread = outlook.spread();
    Spread mechanisms = spread;
    mechanisms.site = mechanisms.own = 0;
    const Range quick = step_range(outlook.response(c.choices), mechanisms);
    const Range exact = exact_range(*job, c.choices, mechanisms);
    INFO(c.workload << " " << quick.low << " " << exact.low << " " << quick.high << " " << exact.high);
    CHECK(quick.low == Approx(exact.low).epsilon(0.02));
    CHECK(quick.high == Approx(exact.high).epsilon(0.02));
  }
}

TEST_CASE("what nobody has measured is less certain") {
  const auto known = test::make_job("llama2-7b", "dgx-a100", 16, 64, 2048, "nemo");
  auto changed = std::make_shared<Job>(*known);
  changed->runtime.name = "a framework that no table names";
  const Spread sure = spread_of(*known), unsure = spread_of(*changed);
  CHECK(sure.rests_on.runtime == Foundation::fitted);
  CHECK(unsure.rests_on.runtime == Foundation::assumed);
  for (const Factor factor : kAllFactors) {
    const auto f = static_cast<std::size_t>(factor);
    CHECK(unsure.factor[f] >= sure.factor[f]);
  }
  const Choices c = spread_over(2, 2, 4);
  const auto width = [&](const std::shared_ptr<const Job>& job) {
    Outlook outlook(job);
    const Range range = step_range(outlook.response(c), outlook.spread());
    CHECK(range.low < 1);
    CHECK(range.high > 1);
    return range.high / range.low;
  };
  CHECK(width(changed) > width(known));
}

TEST_CASE("plans of one job share its draws") {
  const auto job = test::make_job("llama2-7b", "dgx-a100", 16, 64, 2048);
  Outlook outlook(job);
  const Spread spread = of_some_size();
  const auto a = drawn_factors(outlook.response(spread_over(2, 2, 4)), spread, false);
  const auto again = drawn_factors(outlook.response(spread_over(2, 2, 4)), spread, false);
  CHECK(a == again);
}

TEST_CASE("a device of a vendor that no evidence is of is less sure than one of a fitted vendor") {
  const auto clock_of = [](const char* cluster) {
    const Spread spread = spread_of(*test::make_job("llama3-8b", cluster, 8, 64, 4096));
    CHECK(spread.rests_on.device == Foundation::datasheet);
    return spread.factor[static_cast<std::size_t>(Factor::clock)];
  };
  // A catalog device of NVIDIA without a fitted row beside one of AMD.
  CHECK(clock_of("mi300x-8") > 1.5 * clock_of("hgx-h20"));
}

TEST_CASE("a device that nobody measured is less sure than any that was, whoever makes it") {
  const auto spread = [](const char* cluster) {
    return spread_of(*test::make_job("llama3-8b", cluster, 8, 64, 4096));
  };
  const auto clock = [](const Spread& of) { return of.factor[static_cast<std::size_t>(Factor::clock)]; };
  const auto width = [](const char* cluster) {
    Outlook outlook(test::make_job("llama3-8b", cluster, 8, 64, 4096));
    const Range range = step_range(outlook.response(spread_over(1, 1, 8)), outlook.spread());
    return range.high / range.low;
  };
  // H200's products were measured, but no step on it: the population's own spread.
  const double population = clock(spread("dgx-h200"));
  CHECK(spread("dgx-h200").rests_on.device == Foundation::fitted);
  for (const char* fitted : {"dgx-a100", "dgx-h100"}) CHECK(clock(spread(fitted)) < population);
  for (const char* unmeasured : {"hgx-h20", "mi300x-8", "gaudi3-8", "aws-trn2-48xlarge", "tpu-v6e-16x16",
                                 "tpu-v7-4x4x4", "pcie-5090", "ascend-910b-8"}) {
    INFO(unmeasured);
    CHECK(spread(unmeasured).rests_on.device == Foundation::datasheet);
    // docs/accuracy.md, "Devices from their datasheets alone": 0.12 beside the population's.
    CHECK(clock(spread(unmeasured)) >= 0.99 * std::hypot(population, 0.12));
    CHECK(width(unmeasured) > 1.1 * width("dgx-a100"));
  }
  // Links of devices that nobody measured, where nobody measured those either.
  const auto intra = static_cast<std::size_t>(Factor::intra);
  CHECK(spread("mi300x-8").factor[intra] >= 0.2);
  CHECK(spread("hgx-h20").factor[intra] == spread("dgx-h100").factor[intra]);
}

TEST_CASE(
    "a device whose maker is not said, and a processor that was not calibrated, are no surer than others") {
  const auto clock_with = [](const auto& change) {
    auto job = std::make_shared<Job>(*test::make_job("llama3-8b", "mi300x-8", 8, 64, 4096));
    for (DeviceProfile& device : job->cluster.profiles) change(device);
    const Spread spread = spread_of(*job);
    CHECK(spread.rests_on.device >= Foundation::datasheet);
    return spread.factor[static_cast<std::size_t>(Factor::clock)];
  };
  const double amd = clock_with([](DeviceProfile&) {});
  CHECK(clock_with([](DeviceProfile& device) { device.vendor.clear(); }) == amd);
  CHECK(clock_with([](DeviceProfile& device) { device.kind = DeviceKind::cpu; }) == amd);
}

TEST_CASE("the short end of an interval computes no faster than the devices' peak") {
  for (const char* cluster : {"mi300x-8", "tpu-v5p-8x8x8", "dgx-h100"}) {
    Evaluation evaluation =
        evaluate({test::make_job("llama3-8b", cluster, 8, 256, 8192), spread_over(1, 1, 8)});
    add_interval(&evaluation);
    INFO(cluster);
    CHECK(evaluation.interval->step_time_s.low >= throughput(evaluation).hfu * evaluation.step_time_s());
    CHECK(evaluation.interval->step_time_s.low <= evaluation.step_time_s());
  }
}

}  // namespace orrery::planner
