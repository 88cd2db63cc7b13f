#include "planner/uncertainty/odds.h"

#include <catch2/catch.hpp>

namespace orrery::planner {
namespace {

Spread only(Factor factor, double sd) {
  Spread spread;
  spread.factor[static_cast<std::size_t>(factor)] = sd;
  return spread;
}

Contender contender(int tp, double step_s, Factor factor = Factor::matmul, double slope = 0,
                    double bend = 0) {
  Contender found;
  found.choices.tp = tp;
  found.step_s = step_s;
  found.response.estimate_s = step_s;
  found.response.slope[static_cast<std::size_t>(factor)] = slope;
  found.response.bend[static_cast<std::size_t>(factor)] = bend;
  return found;
}

TEST_CASE("what scales two plans alike does not part them") {
  // Both go with the products' time, whatever that is: the faster one always wins, by 2%.
  const auto odds =
      odds_of(std::vector{contender(1, 1.0, Factor::matmul, 0.3), contender(2, 1.02, Factor::matmul, 0.3)},
              only(Factor::matmul, 0.3));
  CHECK(odds[0].probability_fastest == Approx(1));
  CHECK(odds[0].regret_s == Approx(0).margin(1e-12));
  CHECK(odds[1].probability_fastest == Approx(0).margin(1e-12));
  CHECK(odds[1].regret_s == Approx(0.02));
}

TEST_CASE("a plan that is best as predicted and loses much where a factor errs has more expected regret") {
  // By hand: with z normal, ln(t2 / t1) = ln 0.99 + 0.2 z + 0.1 z^2.
  const auto odds = odds_of(std::vector{contender(1, 1.0), contender(2, 0.99, Factor::waiting, 0.2, 0.1)},
                            only(Factor::waiting, 0.2));
  CHECK(odds[0].regret_s < odds[1].regret_s);
  CHECK(odds[0].probability_fastest + odds[1].probability_fastest == Approx(1));
  double regret = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double z = std::clamp(draw(static_cast<int>(Factor::waiting), i), -2.5, 2.5);
    const double other = 0.99 * std::exp(0.2 * z + 0.1 * z * z);
    regret += 0.99 * (other / std::min(1.0, other) - 1) / kDraws;
  }
  CHECK(odds[1].regret_s == Approx(regret));
}

TEST_CASE("what no mechanism explains parts unlike choices, not details, and favours nobody") {
  Spread spread;
  spread.own = 0.1;
  Contender first = contender(1, 1.0), detail = first, other = contender(2, 1.0);
  detail.choices.bucket_bytes = 1e9;
  detail.step_s = 1.001;
  const auto odds = odds_of(std::vector{first, detail, other}, spread);
  CHECK(odds[1].probability_fastest == 0);  // never before the same choice's better detail
  CHECK(odds[0].probability_fastest == Approx(0.5).margin(0.08));
  CHECK(odds[2].probability_fastest == Approx(0.5).margin(0.08));
  CHECK(odds[0].regret_s == Approx(odds[2].regret_s).epsilon(0.15));
}

TEST_CASE("the memory that may be predicted full fits with the probability asked for") {
  Spread spread;
  spread.memory = 0.2;
  const double share = fillable_share(0.95, spread);
  CHECK(share == Approx(std::exp(-1.6448536 * 0.2)));
  CHECK(fit_probability(share * 80e9, 80e9, spread) == Approx(0.95));
  CHECK(fit_probability(80e9, 80e9, spread) == Approx(0.5));
  spread.memory = 0;
  CHECK(fit_probability(79e9, 80e9, spread) == 1);
  CHECK(fit_probability(81e9, 80e9, spread) == 0);
}

}  // namespace
}  // namespace orrery::planner
