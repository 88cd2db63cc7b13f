#include "planner/runs/goodput.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "base/error.h"
#include "base/random.h"
#include "planner/runs/goodput_answer.h"
#include "planner/runs/goodput_simulation.h"

namespace orrery::planner {
namespace {

constexpr double kHour = 3600;

TrainingRun hundred_nodes(std::int64_t steps, double mtti_s) {
  TrainingRun run;
  run.steps = steps;
  run.failures_per_s = 1 / mtti_s;
  run.plans = {{100, 2, 1e6}};
  return run;
}

// Parameters under which every part of the model matters.
TrainingRun random_run(const CounterRandom& random, std::uint64_t& at) {
  const auto between = [&](double low, double high) { return low + (high - low) * random.uniform(at++); };
  const double mtti_s = between(300, 4000);
  TrainingRun run = hundred_nodes(static_cast<std::int64_t>(between(1, 4000)), mtti_s);
  run.checkpoint = {between(0, 60), random.bits(at++) % 2 == 0 ? 0 : between(0, 300), between(0, 100)};
  run.detect_s = between(0, 100);
  run.restart_s = between(0, 100);
  return run;
}

TEST_CASE("Daly's intervals are those of his figures 3 to 5") {
  const double minute = 60;
  CHECK(daly_interval_s(5 * minute, 24 * kHour) / minute == Approx(117).margin(0.5));
  CHECK(daly_interval_s(5 * minute, 6 * kHour) / minute == Approx(57).margin(0.5));
  CHECK(daly_interval_s(5 * minute, 15 * minute) / minute == Approx(9.1).margin(0.05));
  CHECK(young_interval_s(5 * minute, 6 * kHour) == 60 * minute);
  CHECK(daly_interval_s(1000, 400) == 400);
}

TEST_CASE("without failures a run is its steps and its checkpoints") {
  TrainingRun run = hundred_nodes(25, 1);
  run.failures_per_s = 0;
  run.checkpoint.stall_s = 3;
  CHECK(expected_run_s(run, 10) == Approx(25 * 2 + 3 * 3));
  CHECK(failure_free_s(run, 10) == Approx(25 * 2 + 3 * 3));
  CHECK(simulate_run(run, 10, 1, 0).spent.total() == Approx(25 * 2 + 3 * 3));
  run.checkpoint.write_s = 5;  // hidden behind ten steps, and half of it behind none at the end
  CHECK(expected_run_s(run, 10) == Approx(25 * 2 + 3 * 3 + 5));
  run.checkpoint.write_s = 30;  // longer than the steps between: the next checkpoint waits
  CHECK(expected_run_s(run, 10) == Approx(20 + 3 + 30 + 3 + 30 + 3 + 30));
  CHECK(simulate_run(run, 10, 1, 0).spent.total() == Approx(119));
  CHECK(simulate_run(run, 10, 1, 0).spent.checkpoint == Approx(119 - 50));
  CHECK(best_interval(run) == 25);
}

TEST_CASE("one segment under failures takes what a renewal argument says") {
  // (e^((tau + delta) / M) - 1) M e^(R / M), M = 100: tau + delta = 70, R = 20.
  TrainingRun run = hundred_nodes(30, 100);
  run.checkpoint = {10, 0, 5};
  run.detect_s = 7;
  run.restart_s = 8;
  CHECK(expected_run_s(run, 30) == Approx((std::exp(0.7) - 1) * 100 * std::exp(0.2)));
  CHECK(expected_run_s(run, 10) == Approx(3 * (std::exp(0.3) - 1) * 100 * std::exp(0.2)));
}

TEST_CASE("simulated runs take as long as the closed form says, and their parts add up") {
  const CounterRandom random(3, 0);
  std::uint64_t at = 0;
  for (int round = 0; round < 60; ++round) {
    const TrainingRun run = random_run(random, at);
    const auto every =
        std::min<std::int64_t>(run.steps, 1 + static_cast<std::int64_t>(random.bits(at++) % 300));
    INFO("round " << round << ": " << run.steps << " steps, a checkpoint every " << every);
    const RunStatistics statistics = simulate_runs(run, every, 400, 7);
    CHECK(std::abs(statistics.time_s.mean - expected_run_s(run, every)) <=
          4 * statistics.time_error_s + 1e-9 * statistics.time_s.mean);
    CHECK(statistics.spent.total() == Approx(statistics.time_s.mean));
    CHECK(statistics.spent.productive == Approx(run.ideal_s()));
    CHECK(statistics.spent.wait == 0);
    CHECK(statistics.spent.rework >= 0);
    CHECK(statistics.time_s.p5 <= statistics.time_s.p50);
    CHECK(statistics.time_s.p50 <= statistics.time_s.p95);
    // Failures come at a steady rate, whatever the job is doing (Wald).
    const double expected = statistics.time_s.mean * run.failures_per_s;
    CHECK(std::abs(statistics.interruptions.mean - expected) <= 5 * std::sqrt(expected / 400));
  }
}

TEST_CASE("jobs that wait for repairs wait as often as Erlang's formula says") {
  CHECK(erlang_loss(1, 3) == Approx(0.75));
  CHECK(erlang_loss(2, 1) == Approx(0.2));
  CHECK(erlang_loss(5, 0) == 0);
  for (const int spares : {0, 1, 4}) {
    TrainingRun run = hundred_nodes(500'000, 2 * kHour);
    run.checkpoint = {20, 0, 30};
    run.restart_s = 100;
    run.spares = spares;
    run.repair_s = 5 * kHour;
    const RunStatistics statistics = simulate_runs(run, 200, 100, 1);
    INFO(spares << " spares");
    CHECK(statistics.spent.wait / statistics.time_s.mean == Approx(waiting_share(run)).epsilon(0.03));
    CHECK(statistics.time_s.mean == Approx(expected_run_s(run, 200)).epsilon(0.01));
  }
}

TEST_CASE("a run never takes longer with more spares, failure by failure") {
  const CounterRandom random(5, 0);
  std::uint64_t at = 0;
  for (int round = 0; round < 100; ++round) {
    TrainingRun run = random_run(random, at);
    run.repair_s = run.failures_per_s > 0 ? 3 / run.failures_per_s : 0;
    double before = 0, waited = 0;
    for (int spares = 6; spares >= 0; --spares) {
      run.spares = spares;
      const RunOutcome outcome = simulate_run(run, 50, 1, static_cast<std::uint64_t>(round));
      CHECK(outcome.spent.total() >= before * (1 - 1e-12));
      CHECK(outcome.spent.wait >= waited - 1e-6);
      before = outcome.spent.total();
      waited = outcome.spent.wait;
    }
  }
}

TEST_CASE("the chosen interval is the best of all, and near Daly's") {
  const CounterRandom random(9, 0);
  std::uint64_t at = 0;
  for (int round = 0; round < 60; ++round) {
    const TrainingRun run = random_run(random, at);
    const std::int64_t best = best_interval(run);
    INFO(run.steps << " steps, a checkpoint every " << best);
    double least = expected_active_s(run, best);
    for (std::int64_t every = 1; every <= run.steps; ++every)
      least = std::min(least, expected_active_s(run, every));
    CHECK(expected_active_s(run, best) == Approx(least).epsilon(1e-4));
    if (run.checkpoint.write_s == 0 && best < run.steps / 10 && best > 50)
      CHECK(static_cast<double>(best) * run.plan().step_s ==
            Approx(daly_interval_s(run.checkpoint.stall_s, 1 / run.failures_per_s)).epsilon(0.1));
  }
}

TEST_CASE("goodput falls with the time between failures and rises with storage, spares and quick repairs") {
  const CounterRandom random(13, 0);
  std::uint64_t at = 0;
  const auto best_s = [](const TrainingRun& run) { return expected_run_s(run, best_interval(run)); };
  for (int round = 0; round < 100; ++round) {
    TrainingRun run = random_run(random, at);
    run.repair_s = 2000;
    run.spares = static_cast<int>(random.bits(at++) % 4);
    const double now = best_s(run);
    CHECK(now >= run.ideal_s());
    TrainingRun worse = run;
    worse.failures_per_s *= 1.3;
    CHECK(best_s(worse) > now);
    worse = run;
    worse.checkpoint.stall_s += 1;
    worse.checkpoint.write_s *= 2;
    worse.checkpoint.read_s *= 2;
    CHECK(best_s(worse) > now);
    worse = run;
    worse.repair_s *= 2;
    CHECK(best_s(worse) > now);
    TrainingRun better = run;
    better.spares += 1;
    CHECK(best_s(better) < now);
  }
}

TEST_CASE("the cheapest number of spares is that of the fewest node-seconds") {
  for (const double repair_hours : {0.0, 0.5, 5.0, 50.0}) {
    TrainingRun run = hundred_nodes(1000, 2 * kHour);
    run.repair_s = repair_hours * kHour;
    const int cheapest = cheapest_spares(run);
    const auto node_s = [&](int spares) {
      run.spares = spares;
      return expected_run_s(run, 100) * (100 + spares);
    };
    for (int spares = 0; spares < 80; ++spares) CHECK(node_s(cheapest) <= node_s(spares) * (1 + 1e-12));
    if (repair_hours == 0) CHECK(cheapest == 0);
    if (repair_hours == 50) CHECK(cheapest > 25);  // that many are in repair on average
  }
}

TEST_CASE("an elastic run goes on where another waits, and grows again") {
  TrainingRun waiting = hundred_nodes(100'000, 2 * kHour);
  waiting.checkpoint = {10, 0, 10};
  waiting.restart_s = 60;
  waiting.repair_s = 10 * kHour;
  waiting.spares = 2;
  TrainingRun elastic = waiting;
  for (int lost = 1; lost <= 20; ++lost) elastic.plans.push_back({100 - lost, 2 * 100.0 / (100 - lost), 1e6});
  const RunStatistics with = simulate_runs(elastic, 300, 100, 1);
  const RunStatistics without = simulate_runs(waiting, 300, 100, 1);
  CHECK(with.time_s.mean < without.time_s.mean);
  CHECK(with.spent.degraded > 0);
  CHECK(with.spent.wait == Approx(0).margin(1e-9 * with.time_s.mean));
  CHECK(with.spent.productive == Approx(elastic.ideal_s()));
  CHECK(with.spent.total() == Approx(with.time_s.mean));
  // Five nodes in repair on average, less the two spares: a degraded step is a few percent longer.
  CHECK(with.spent.degraded / with.spent.productive < 0.06);
  CHECK(with.working_s[0] > with.working_s[15]);
  // Where one plan is as good as the other it costs restarts alone.
  for (RunningPlan& plan : elastic.plans) plan = {plan.nodes, 2, 1e6};
  CHECK(simulate_runs(elastic, 300, 20, 1).spent.degraded == Approx(0).margin(1e-6));
}

TEST_CASE("without costs of changing, an elastic run is as fast as the birth-death chain of its nodes") {
  // A step and its checkpoint are over at once, so nothing is redone and every change comes at once: n nodes
  // in repair come at rate L (100 - n) / 100 and go at rate n / repair; each state's speed is its nodes'.
  TrainingRun run = hundred_nodes(400'000'000, kHour);
  run.plans = {{100, 0.01, 0}};
  run.repair_s = 4 * kHour;
  for (int lost = 1; lost <= 40; ++lost) run.plans.push_back({100 - lost, 0.01 * 100 / (100 - lost), 0});
  double weight = 1, weights = 1, speed = 1;
  for (int lost = 1; lost <= 40; ++lost) {
    weight *= (101.0 - lost) / 100 * 4 / lost;
    weights += weight;
    speed += weight * (100.0 - lost) / 100;
  }
  const RunStatistics statistics = simulate_runs(run, 1, 40, 1);
  CHECK(statistics.time_s.mean == Approx(run.ideal_s() * weights / speed).epsilon(0.001));
  CHECK(statistics.spent.rework < 1e-4 * statistics.time_s.mean);
  CHECK(statistics.spent.checkpoint == Approx(0).margin(1e-3));
}

TEST_CASE("a run that does not get from one checkpoint to the next is refused at once") {
  TrainingRun run = hundred_nodes(1000, 1);
  run.checkpoint.stall_s = 1000;
  CHECK_FALSE(std::isfinite(expected_run_s(run, 1)));
  GoodputQuestion question;
  question.run = run;
  CHECK_THROWS_AS(answer(question), NoAnswer);
  CHECK_THROWS_AS(simulate_run(run, 1, 1, 0), NoAnswer);
  question.run = hundred_nodes(1'000'000'000'000, 10);
  question.run.checkpoint.stall_s = 1;
  CHECK_THROWS_WITH(answer(question), Catch::Contains("fewer runs"));
}

TEST_CASE("percentiles lie between the two nearest values") {
  const Distribution of_five = distribution_of({5, 1, 4, 2, 3});
  CHECK(of_five.mean == 3);
  CHECK(of_five.p50 == 3);
  CHECK(of_five.p5 == Approx(1.2));
  CHECK(of_five.p95 == Approx(4.8));
  CHECK(distribution_of({7}).p95 == 7);
  // Summing two hundred times 0.1 and dividing gives more than 0.1: the mean of runs that all take as long
  // would be none of what they take.
  const Distribution alike = distribution_of(std::vector<double>(200, 0.1));
  CHECK(alike.mean == 0.1);
  CHECK((alike.p5 == 0.1 && alike.p95 == 0.1));
}

TEST_CASE("an answer's cost is of all nodes and spares, and its table has the neighbours of what was asked") {
  GoodputQuestion question;
  question.run = hundred_nodes(100'000, 2 * kHour);
  question.run.checkpoint = {10, 0, 10};
  question.run.repair_s = kHour;
  question.run.spares = 2;
  question.runs = 50;
  question.usd_per_s = 10;
  question.idle_power_w = 1000;
  const GoodputAnswer result = answer(question);
  const double time_s = result.figures.statistics.time_s.mean;
  CHECK(result.figures.goodput == Approx(200'000 / time_s));
  CHECK(result.figures.cost_usd.value() == Approx(10 * time_s * 1.02));
  // At least every step once, and idle the rest of the time.
  CHECK(result.figures.energy_j.value() > 100'000 * 1e6);
  CHECK(result.figures.energy_j.value() < time_s / 2 * 1e6 + time_s * 1000);
  std::vector<std::string> keys;
  for (const Alternative& alternative : result.alternatives) {
    keys.push_back(alternative.key);
    const double other_s = alternative.figures.statistics.time_s.mean;
    if (alternative.key == "storage_bandwidth_x2" || alternative.figures.spares > 2)
      CHECK(other_s <= time_s);
    else
      CHECK(other_s >= time_s);
  }
  CHECK(keys == std::vector<std::string>{"checkpoint_interval_halved", "checkpoint_interval_doubled",
                                         "storage_bandwidth_x2", "spares_0", "spares_1", "spares_3",
                                         "spares_4"});
  CHECK_FALSE(result.interval);
}

TEST_CASE("an interval is of the step's draws and of failures together") {
  GoodputQuestion question;
  question.run = hundred_nodes(100'000, 2 * kHour);
  question.run.checkpoint = {10, 0, 10};
  question.runs = kDraws;
  question.usd_per_s = 10;
  question.step_draws = {std::vector<double>(kDraws, 1), {}, "a step"};
  const GoodputAnswer chance = answer(question);
  const Distribution& time_s = chance.figures.statistics.time_s;
  REQUIRE(chance.interval);
  // A step that is known: what failures alone leave, the runs that the mean is of.
  CHECK(chance.interval->time_s.low == Approx(time_s.p5).epsilon(0.002));
  CHECK(chance.interval->time_s.high == Approx(time_s.p95).epsilon(0.002));
  CHECK(chance.interval->cost_usd->high == Approx(10 * chance.interval->time_s.high));
  CHECK_FALSE(chance.interval->energy_j);
  CHECK_THAT(chance.interval->narrowed_by, Catch::Contains("chance"));

  for (int i = 0; i < kDraws; ++i)
    question.step_draws.factors[static_cast<std::size_t>(i)] = std::exp(0.2 * draw(0, i));
  const GoodputAnswer both = answer(question);
  const Range step = range_of(question.step_draws.factors);
  CHECK(both.figures.statistics.time_s.mean == time_s.mean);
  CHECK(both.interval->step_time_s.high == Approx(2 * step.high));
  CHECK(both.interval->time_s.low < chance.interval->time_s.low);
  CHECK(both.interval->time_s.high > chance.interval->time_s.high);
  CHECK(both.interval->time_s.high / both.interval->time_s.low == Approx(step.high / step.low).epsilon(0.02));
  CHECK(both.interval->narrowed_by == "a step");

  // Where hardly a run is interrupted the mean is none of what nine runs in ten take, and yet inside.
  GoodputQuestion rare = question;
  rare.runs = 2000;
  for (const double as_often : {1e-6, 1e-5, 1e-4, 1e-3}) {
    rare.run.failures_per_s = question.run.failures_per_s * as_often;
    const GoodputAnswer said = answer(rare);
    CAPTURE(as_often);
    CHECK(said.interval->time_s.low <= said.figures.statistics.time_s.mean);
    CHECK(said.interval->time_s.high >= said.figures.statistics.time_s.mean);
    CHECK(said.interval->goodput.low <= said.figures.goodput);
    CHECK(said.interval->goodput.high >= said.figures.goodput);
    CHECK(said.interval->cost_usd->low <= *said.figures.cost_usd);
    CHECK(said.interval->cost_usd->high >= *said.figures.cost_usd);
  }

  question.step_draws.factors[7] = 1e5;  // no step of it is ever done between failures
  CHECK_FALSE(answer(question).interval);
}

}  // namespace
}  // namespace orrery::planner
