#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <catch2/catch.hpp>

#include "planner/search/agenda.h"
#include "planner/search/candidates.h"
#include "planner/search/known_recipe.h"
#include "planner/search/search.h"
#include "tests/support/jobs.h"

namespace orrery::planner {
namespace {

using test::make_job;

std::shared_ptr<Job> mixtral() {
  return make_job("mixtral-8x7b", "dgx-h100", 64, 64, 4096, "typical");
}

TEST_CASE("the answer has the least expected regret, and the best as predicted stands beside it") {
  const SearchResult robust = planner::search(mixtral(), {}, {});
  SearchOptions options;
  options.rank = Rank::nominal;
  const SearchResult nominal = planner::search(mixtral(), {}, options);
  REQUIRE(robust.plans.front().odds);
  double sum = 0;
  for (const Evaluation& plan : robust.plans) {
    CHECK(plan.odds->regret_s >= robust.plans.front().odds->regret_s);
    sum += plan.odds->probability_fastest;
  }
  CHECK(sum <= 1 + 1e-9);
  // Likelier than as many of those compared, taken blindly.
  CHECK(sum > static_cast<double>(robust.plans.size()) / robust.compared);
  for (const Evaluation& plan : nominal.plans)
    CHECK(plan.step_time_s() >= nominal.plans.front().step_time_s());
  if (robust.nominal) {
    CHECK(robust.nominal->step_time_s() <= robust.plans.front().step_time_s());
    CHECK(robust.nominal->odds->regret_s >= robust.plans.front().odds->regret_s);
  }
  CHECK_FALSE(nominal.nominal);
}

TEST_CASE("the list is of choices that differ in more than a detail, and they fit with 95% probability") {
  const SearchResult result = planner::search(mixtral(), {}, {});
  CHECK(result.plans.size() == 10);
  for (std::size_t i = 0; i < result.plans.size(); ++i) {
    CHECK(result.plans[i].interval->fit_probability >= 0.95 - 1e-9);
    CHECK(result.plans[i].interval->memory_bytes.high <= result.plans[i].memory.capacity * (1 + 1e-6));
    for (std::size_t j = 0; j < i; ++j)
      CHECK_FALSE(same_choice(result.plans[i].plan.choices, result.plans[j].plan.choices));
  }
}

TEST_CASE("a pinned plan that may not fit is answered with a warning, one that does not fit is not") {
  const auto job = make_job("llama2-7b", "dgx-a100", 8, 8, 6016, "typical");
  Pins pins;
  pins.tp = pins.pp = pins.cp = 1;
  pins.zero = 1;
  pins.recompute = Recompute::none;
  const SearchResult result = planner::search(job, pins, {});
  const Evaluation& best = result.plans.front();
  CHECK(best.memory.fits());
  REQUIRE(best.interval->fit_probability < 0.95);
  REQUIRE(result.warnings.size() == 1);
  CHECK_THAT(result.warnings.front(), Catch::Contains("probability, not 95%"));
  SearchOptions options;
  options.fit_probability = best.interval->fit_probability - 0.01;
  CHECK(planner::search(job, pins, options).warnings.empty());
}

TEST_CASE("where no plan is likely enough to fit, the answer is about as likely as the likeliest") {
  const auto job = make_job("llama3-8b", "dgx-h100", 2, 8, 2048, "typical");
  SearchOptions leanest;
  leanest.objective = Objective::memory;
  const double least_bytes = planner::search(job, {}, leanest).plans.front().memory.needed;
  for (const double wanted : {0.95, 0.8}) {
    SearchOptions options;
    options.fit_probability = wanted;
    const SearchResult result = planner::search(job, {}, options);
    const Evaluation& best = result.plans.front();
    REQUIRE(best.interval->fit_probability < wanted);
    CHECK(best.memory.needed <= least_bytes * (1 + kNearLeastMemory));
    CHECK_THAT(result.warnings.front(), Catch::Contains("much more likely to fit"));
  }
}

TEST_CASE("a pin that the runtime cannot run is answered with a warning that says so") {
  Pins pins;
  pins.pp = 4;
  pins.schedule = Schedule::zero_bubble;
  const SearchResult result = planner::search(make_job("gpt2", "dgx-a100", 8, 32, 256), pins, {});
  REQUIRE(result.warnings.size() == 1);
  CHECK_THAT(result.warnings.front(), Catch::Contains("no zero-bubble schedule"));
  Pins whole;  // sequences, beside experts
  whole.tp = 2;
  whole.pp = whole.ep = 4;
  whole.sequence_parallel = false;
  SearchOptions options;
  options.top = 1;
  const auto experts = make_job("mixtral-8x7b", "dgx-h100", 32, 64, 4096, "megatron-core");
  CHECK_THAT(fmt::format("{}", fmt::join(planner::search(experts, whole, options).warnings, "\n")),
             Catch::Contains("splits sequences wherever there are tensor ranks beside experts"));
}

TEST_CASE("sequences longer than the model's table of positions are answered with a warning") {
  Pins pins;
  pins.tp = pins.pp = 1;
  const auto job = make_job("gpt2", "dgx-a100", 1, 4, 4096);
  const SearchResult result = planner::search(job, pins, {});
  REQUIRE(result.warnings.size() == 1);
  CHECK_THAT(result.warnings.front(),
             Catch::Contains("gpt2 has 1,024 learned positions: sequences of 4,096 tokens"));
}

TEST_CASE("known recipes are found by size, experts and machine, and fitted to the devices") {
  const auto recipe = [](const std::shared_ptr<Job>& job) {
    Estimator estimator(job);
    return nearest_recipe(job, estimator, 0.75);
  };
  const auto deepseek = recipe(make_job("deepseek-v3", "dgx-h100", 2048, 15360, 4096));
  REQUIRE(deepseek);
  CHECK(deepseek->name == "DeepSeek-V3");
  CHECK(deepseek->candidate.choices.pp == 16);
  CHECK(deepseek->candidate.choices.ep == 64);
  const auto llama = recipe(make_job("llama3-70b", "dgx-h100", 64, 128, 8192));
  REQUIRE(llama);
  CHECK_THAT(llama->name, Catch::Contains("70B"));
  CHECK(llama->candidate.choices.world() == 64);
  CHECK_FALSE(recipe(make_job("vgg16", "v100-ib100", 2, 64, 0)));  // five times the nearest's parameters
  const SearchResult result = planner::search(make_job("gpt2", "dgx-a100-40g", 8, 96, 1024), {}, {});
  REQUIRE(result.known_recipe);
  CHECK(result.known_recipe->evaluation.plan.choices.dp == 8);
  CHECK(result.known_recipe->evaluation.plan.choices.zero == 0);
  CHECK(result.known_recipe->evaluation.simulation);
}

}  // namespace
}  // namespace orrery::planner
