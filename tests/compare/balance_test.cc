#include "compare/balance.h"

#include <catch2/catch.hpp>
#include <cmath>

namespace orrery::comparison {
namespace {

TEST_CASE("shares by speed take the deviation that even shares have away") {
  // Three at a second a sample, one at five: 64 samples.
  const std::vector<double> seconds = {1, 1, 1, 5};
  const Balance even = balance(Shares::even, seconds, 64, 1, 3, {}, 1);
  CHECK(even.steps[0].busy_s == std::vector<double>{16, 16, 16, 80});
  CHECK(even.std_s == Approx(16 * std::sqrt(3.0)));  // [1, 1, 1, 5] has a deviation of root 3
  CHECK(even.max_over_mean == Approx(2.5));
  const Balance by_speed = balance(Shares::by_speed, seconds, 64, 1, 3, {}, 1);
  CHECK(by_speed.steps[0].longest_s == 80);  // nothing is known yet
  CHECK(by_speed.steps[1].samples == std::vector<std::int64_t>{20, 20, 20, 4});
  CHECK(by_speed.std_s == Approx(0).margin(1e-9));
  CHECK(by_speed.longest_s == Approx(20));
  const Balance stealing = balance(Shares::stealing, seconds, 64, 1, 3, {}, 1);
  CHECK(stealing.steps[0].longest_s <= 25);  // within the slowest one's piece of the optimum
}

TEST_CASE("static shares are wrong once speeds change, dynamic ones a step later right") {
  Trouble trouble;
  trouble.kind = TroubleKind::on_off;
  trouble.at = 0;
  trouble.speed = 0.25;
  trouble.on_s = 2000;
  trouble.off_s = 2000;
  const std::vector<double> seconds = {1, 1, 1, 1};
  const auto mean_s = [&](Shares shares) {
    return balance(shares, seconds, 64, 1, 400, {trouble}, 5).longest_s;
  };
  CHECK(mean_s(Shares::even) > 1.2 * mean_s(Shares::dynamic));
  CHECK(mean_s(Shares::by_speed) > 1.1 * mean_s(Shares::dynamic));
  // At best 64 / 3.25 while it is slow, 16 while it is not.
  CHECK(mean_s(Shares::dynamic) >= 16);
}

}  // namespace
}  // namespace orrery::comparison
