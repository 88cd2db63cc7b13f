#include "planner/search/pareto.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "base/random.h"
#include "planner/closed_form/memory_model.h"
#include "planner/space/space.h"
#include "tests/support/jobs.h"

namespace orrery::planner {
namespace {

using test::make_job;

TEST_CASE("a plan dominates another that is no better in anything and worse in something") {
  const Figures plain{1, 1, 1, 1};
  CHECK_FALSE(dominates(plain, plain));
  CHECK(dominates(plain, {1, 1, 1, 2}));
  CHECK(dominates(plain, {2, 2, 2, 2}));
  CHECK_FALSE(dominates(plain, {0.5, 1, 1, 2}));
  CHECK(pareto_front({{2, 0, 0, 1}, {1, 0, 0, 2}, {2, 0, 0, 2}, {1, 0, 0, 2}}) ==
        std::vector<std::size_t>{1, 0});
  CHECK(pareto_front({}).empty());
}

TEST_CASE("fronts of random figures: members beat none of each other, all others are beaten by one") {
  const CounterRandom random(11, 0);
  std::uint64_t at = 0;
  for (int round = 0; round < 300; ++round) {
    std::vector<Figures> figures(random.bits(at++) % 40);
    for (Figures& f : figures)
      f = {double(random.bits(at++) % 6), double(random.bits(at++) % 4), double(random.bits(at++) % 4),
           double(random.bits(at++) % 6)};
    const std::vector<std::size_t> front = pareto_front(figures);
    for (std::size_t i = 0; i < figures.size(); ++i) {
      const bool member = std::find(front.begin(), front.end(), i) != front.end();
      bool beaten = false, twin = false;
      for (const std::size_t other : front) {
        beaten = beaten || dominates(figures[other], figures[i]);
        twin = twin || (!dominates(figures[i], figures[other]) && !dominates(figures[other], figures[i]) &&
                        figures[i].step_s == figures[other].step_s &&
                        figures[i].memory_bytes == figures[other].memory_bytes);
      }
      CHECK(member != (beaten || (twin && !member)));
    }
  }
}

TEST_CASE(
    "no plan of an answer's front is beaten by another simulated one, with and without looking for it") {
  const auto job = make_job("gpt2-xl", "dgx-a100", 8, 32, 1024);
  for (const bool whole : {false, true}) {
    SearchOptions options;
    options.rank = Rank::nominal;
    options.top = 100000;  // all that was simulated
    options.budget_s = 0.2;
    options.pareto = whole;
    const SearchResult result = planner::search(job, {}, options);
    // One of each choice is listed.
    REQUIRE(static_cast<std::int64_t>(result.plans.size()) <= result.simulated);
    REQUIRE(result.plans.size() > 10);
    REQUIRE_FALSE(result.pareto.empty());
    for (const Evaluation& listed : result.pareto)
      for (const Evaluation& other : result.plans)
        CHECK_FALSE(dominates(figures_of(other), figures_of(listed)));
    // The fastest is always one of them, and every simulated plan is listed or beaten or equalled.
    CHECK(result.pareto.front().step_time_s() == result.plans.front().step_time_s());
    if (whole) {
      CHECK(result.pareto_looked_into > 1000);
      CHECK(result.pareto.size() > 3);
      CHECK(result.pareto.back().memory.total < 0.8 * result.pareto.front().memory.total);
    }
  }
}

TEST_CASE("a survey's front is that of all plans of a small space, by the closed form") {
  const auto job = make_job("gpt2", "dgx-a100", 4, 8, 512);
  Pins pins;
  pins.overlap_grad_reduce = true;
  pins.bucket_bytes = 64e6;
  Estimator estimator(job);
  const Survey seen = survey(job, pins, estimator, 1'000'000);
  CHECK(std::isinf(seen.beyond_s));
  MemoryModel memory(job);
  const auto figures = [&](const Choices& choices) {
    const StepTimes times = estimator.times(choices);
    return Figures{times.estimate_s, usd_per_s(job->cluster) * times.estimate_s,
                   objective_value(Objective::energy, *job, times.estimate_s, times.compute_s, 0),
                   memory.predict(choices).total};
  };
  const std::vector<Choices> all = enumerate(job, pins);
  CHECK(seen.looked_into == static_cast<std::int64_t>(all.size()));
  CHECK(seen.space == seen.looked_into);
  std::vector<Figures> every;
  for (const Choices& choices : all) every.push_back(figures(choices));
  const std::vector<std::size_t> front = pareto_front(every);
  REQUIRE(front.size() == seen.front.size());
  for (std::size_t i = 0; i < front.size(); ++i) {
    CHECK(figures(seen.front[i]).step_s == every[front[i]].step_s);
    CHECK(figures(seen.front[i]).memory_bytes == every[front[i]].memory_bytes);
  }
  // Cut short it says beyond which step time it knows nothing.
  const Survey part = survey(job, pins, estimator, 50);
  CHECK(part.looked_into < seen.looked_into);
  CHECK(part.beyond_s > 0);
  CHECK(std::isfinite(part.beyond_s));
}

}  // namespace
}  // namespace orrery::planner
