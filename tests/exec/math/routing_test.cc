// Routing tokens to experts: who goes where, who is dropped, and the gradient.
#include "exec/math/routing.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>

#include "exec/device/memory_pool.h"
#include "exec/run/run_report.h"
#include "exec/state/learning_rate.h"
#include "exec/state/loss_scaler.h"
#include "tests/exec/device/device_fixture.h"

namespace orrery::exec::test {

TEST_CASE("every token goes to its most likely experts, rows of one expert side by side") {
  // Three tokens, three experts, two choices each.
  const std::vector<float> scores = {3, 2, 1, 1, 3, 2, 3, 1, 2};
  Routing r;
  route(scores.data(), 3, 3, 2, /*capacity=*/0, &r);
  CHECK(r.choice == std::vector<std::int32_t>{0, 1, 1, 2, 0, 2});
  CHECK(r.sent == std::vector<std::int64_t>{2, 2, 2});
  // First choices before second ones: expert 0 has tokens 0 and 2, expert 1 tokens 1 and 0, expert 2 1 and 2.
  CHECK(r.token_of_slot == std::vector<std::int32_t>{0, 2, 1, 0, 1, 2});
  const float e = std::exp(1.0F);
  CHECK(r.weight[0] == Approx(e / (e + 1)));
  CHECK(r.weight[0] + r.weight[1] == Approx(1));
  r.received = r.sent;
  lay_out_received(1, &r);
  REQUIRE(r.segments.size() == 3);
  CHECK(r.segments[1].begin == 2);
  CHECK(r.received_rows == 6);
}

TEST_CASE("with a capacity experts have as many rows each, and what does not fit is dropped") {
  const std::vector<float> scores = {2, 1, 2, 1, 2, 1};  // all three tokens want expert 0 first
  Routing r;
  route(scores.data(), 3, 2, 1, /*capacity=*/2, &r);
  CHECK(r.sent == std::vector<std::int64_t>{2, 2});
  CHECK(r.slot == std::vector<std::int32_t>{0, 1, -1});
  CHECK(r.token_of_slot == std::vector<std::int32_t>{0, 1, -1, -1});
  CHECK(r.chosen == std::vector<std::int64_t>{3, 0});
}

TEST_CASE("rows from several senders are segments of this rank's experts, and empty ones are none") {
  Routing r;
  r.received = {2, 0, 1, 3};  // two senders, two experts
  lay_out_received(2, &r);
  REQUIRE(r.segments.size() == 3);
  CHECK(r.segments[0].expert == 0);
  CHECK(r.segments[1].expert == 0);
  CHECK(r.segments[1].begin == 2);
  CHECK(r.segments[2].expert == 1);
  CHECK(r.received_rows == 6);
}

TEST_CASE("how unequally ranks' experts are loaded is counted over dispatches") {
  Routing r;
  r.experts = 4;
  r.received = {3, 1, 2, 0};  // of two senders, for two experts
  lay_out_received(2, &r);
  CHECK(rows_of(r).rows == 6);
  CHECK(rows_of(r).squares == 5 * 5 + 1 * 1);
  Merged merged;
  // Two dispatches: rank 0 has 6 of 8 rows (5 and 1; 1 and 1), then all have as many.
  merged.routed = {{{6, 26}, {4, 8}}, {{2, 2}, {4, 8}}};
  std::vector<Program> programs(2);
  for (int rank = 0; rank < 2; ++rank) {
    programs[static_cast<std::size_t>(rank)].rank = rank;
    programs[static_cast<std::size_t>(rank)].groups = {{GroupKind::data, {0, 1}},
                                                       {GroupKind::expert, {0, 1}}};
  }
  MixtureOfExperts moe;
  moe.experts = 4;
  moe.experts_per_token = 1;
  const auto routing = routing_of_run(merged, programs, moe);
  REQUIRE(routing);
  CHECK(routing->dispatches == 2);
  CHECK(routing->fullest_share == Approx((1.5 + 1) / 2));
  // By expert 5 1 1 1: a deviation of sqrt(3) around 2; the most is sqrt(4 - 1) times the mean.
  CHECK(routing->spread == Approx(std::sqrt((3.0 / 4 / 3) / 2)));
  merged.routed = {{}, {}};
  CHECK_FALSE(routing_of_run(merged, programs, moe));
}

TEST_CASE("ranks that share experts gather equal parts, the longest's, and read no more than each has") {
  Routing r;
  // Two members with two senders and two experts each: 3 and 5 rows.
  lay_out_gathered(std::vector<std::int64_t>{2, 0, 1, 0, 0, 4, 0, 1}, 2, 2, &r);
  CHECK(r.member_rows == 5);
  CHECK(r.received_rows == 10);
  REQUIRE(r.segments.size() == 4);
  const auto is = [&](std::size_t i, int expert, std::int64_t begin, std::int64_t rows) {
    return r.segments[i].expert == expert && r.segments[i].begin == begin && r.segments[i].rows == rows;
  };
  CHECK(is(0, 0, 0, 2));
  CHECK(is(1, 0, 2, 1));
  CHECK(is(2, 1, 5, 4));
  CHECK(is(3, 1, 9, 1));
  lay_out_gathered(std::vector<std::int64_t>{0, 0}, 2, 1, &r);  // nobody's tokens chose them
  CHECK(r.segments.empty());
  CHECK(r.received_rows == 0);
}

TEST_CASE("the router's gradient is that of its weights and of the auxiliary loss") {
  constexpr int kRows = 5;
  constexpr int kExperts = 4;
  constexpr int kChosen = 2;
  constexpr double kBalance = 0.3;
  const auto scores = random_values(kRows * kExperts, 1);
  const auto dweight = random_values(kRows * kChosen, 2);
  const bool scaled = GENERATE(true, false);
  Routing r;
  r.scaled = scaled;
  route(scores.data(), kRows, kExperts, kChosen, 0, &r);
  std::vector<float> dscores(scores.size());
  route_backward(r, dweight.data(), kBalance, dscores.data());
  // In double precision, the choices held fixed.
  const auto loss = [&](const std::vector<double>& s) {
    double sum = 0;
    for (std::size_t t = 0; t < kRows; ++t) {
      std::vector<double> p(kExperts);
      double all = 0;
      for (std::size_t e = 0; e < kExperts; ++e) all += p[e] = std::exp(s[t * kExperts + e]);
      double chosen = 0;
      for (std::size_t e = 0; e < kExperts; ++e) {
        p[e] /= all;
        sum += kBalance * kExperts * static_cast<double>(r.chosen[e]) / (kRows * kChosen) * p[e];
      }
      for (std::size_t j = 0; j < kChosen; ++j)
        chosen += p[static_cast<std::size_t>(r.choice[t * kChosen + j])];
      for (std::size_t j = 0; j < kChosen; ++j)
        sum += static_cast<double>(dweight[t * kChosen + j]) *
               p[static_cast<std::size_t>(r.choice[t * kChosen + j])] / (scaled ? chosen : 1);
    }
    return std::vector<double>{sum};
  };
  CHECK(difference(dscores, numeric_gradient(scores, {1}, loss)) < 1e-5);
}

TEST_CASE("a pool gives memory back to those who come next") {
  const auto device = make_cpu_device();
  MemoryPool pool(*device);
  void* a = pool.take(10000);
  void* b = pool.take(10000);
  CHECK(a != b);
  pool.give_back(a);
  CHECK(pool.take(9000) == a);
  const std::size_t before = device->peak_bytes();
  pool.give_back(b);
  pool.give_back(a);
  pool.take(0);  // far smaller: no waste
  CHECK(device->peak_bytes() <= before + 4096);
}

TEST_CASE("the learning rate is scaled with the batch and warmed up") {
  LearningRate rate;
  CHECK(rate.at(0, 0.1, 256) == 0.1);
  rate.base = 0.2;
  rate.base_batch = 128;
  CHECK(rate.at(7, 0.1, 256) == Approx(0.4));
  rate.warmup_steps = 4;
  CHECK(rate.at(0, 0.1, 256) == Approx(0.1));
  CHECK(rate.at(3, 0.1, 256) == Approx(0.4));
  CHECK(rate.at(9, 0.1, 256) == Approx(0.4));
}

TEST_CASE("the learning rate goes down as its schedule says, after the warm-up") {
  LearningRate rate;
  rate.base = 2;
  rate.warmup_steps = 10;
  rate.steps = 110;
  rate.least = 0.1;
  const auto at = [&](std::int64_t step) { return rate.at(step, 0.1, 256); };
  CHECK(at(109) == Approx(2));
  rate.schedule = RateSchedule::linear;
  CHECK(at(4) == Approx(1));
  CHECK(at(10) == Approx(2));
  CHECK(at(60) == Approx(2 * (0.1 + 0.9 * 0.5)));
  CHECK(at(110) == Approx(0.2));
  rate.schedule = RateSchedule::cosine;
  CHECK(at(10) == Approx(2));
  CHECK(at(60) == Approx(2 * (0.1 + 0.9 * 0.5)));
  CHECK(at(35) == Approx(2 * (0.1 + 0.9 * (1 + std::sqrt(0.5)) / 2)));
  CHECK(at(110) == Approx(0.2));
  rate.schedule = RateSchedule::wsd;  // the last tenth: 11 steps
  CHECK(at(98) == Approx(2));
  CHECK(at(99) == Approx(2));
  CHECK(at(110) == Approx(0.2));
  rate.decay_steps = 50;
  CHECK(at(60) == Approx(2));
  CHECK(at(85) == Approx(2 * (0.1 + 0.9 * 0.5)));
}

TEST_CASE("a loss scale falls when gradients overflow and rises after many that did not") {
  LossScaler scaler;
  const float begin = scaler.scale();
  scaler.update(false);
  CHECK(scaler.scale() == begin / 2);
  for (int i = 0; i < 1999; ++i) scaler.update(true);
  CHECK(scaler.scale() == begin / 2);
  scaler.update(true);
  CHECK(scaler.scale() == begin);
}

}  // namespace orrery::exec::test
