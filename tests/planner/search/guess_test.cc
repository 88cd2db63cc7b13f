#include "planner/search/guess.h"

#include <catch2/catch.hpp>

#include "base/error.h"
#include "planner/space/order_choice.h"
#include "planner/space/space.h"
#include "planner/space/split_choice.h"
#include "planner/uncertainty/outlook.h"
#include "tests/support/jobs.h"

namespace orrery::planner {

TEST_CASE("a guess is the plan with the least estimate of all that fit, not simulated") {
  const auto job = test::make_job("gpt2", "dgx-a100", 4, 16, 256);
  Pins pins;
  pins.tp = 2;
  const SearchOptions options;
  const Evaluation guessed = guess(job, pins, options);
  CHECK_FALSE(guessed.simulation);
  REQUIRE(guessed.interval);
  CHECK(guessed.interval->fit_probability >= options.fit_probability);
  CHECK(guessed.interval->step_time_s.low < guessed.estimate_s);
  CHECK(guessed.interval->step_time_s.high > guessed.estimate_s);
  const double fillable = fillable_share(options.fit_probability, Outlook(job).spread());
  const auto ordered = with_order(with_splits(job, pins), pins);
  int looked_at = 0;
  for (const Choices& choices : enumerate(ordered, pins)) {
    const Evaluation other = evaluate({ordered, choices});
    if (!other.memory.fits(fillable)) continue;
    ++looked_at;
    CHECK(other.estimate_s >= guessed.estimate_s * (1 - 1e-12));
  }
  CHECK(looked_at > 20);
}

TEST_CASE("where nothing fits a guess says so as the search does") {
  const auto job = test::make_job("gpt3-175b", "dgx-a100", 1, 1, 2048);
  std::string searched, guessed;
  try {
    search(job, {}, {});
  } catch (const NoAnswer& no) {
    searched = no.what();
  }
  try {
    guess(job, {}, {});
  } catch (const NoAnswer& no) {
    guessed = no.what();
  }
  CHECK_FALSE(searched.empty());
  CHECK(guessed == searched);
}

}  // namespace orrery::planner
