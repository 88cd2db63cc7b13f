#include "planner/evaluation/load.h"

#include <catch2/catch.hpp>

#include "tests/support/jobs.h"

namespace orrery::planner {
namespace {

using test::make_job;

Evaluation simulated(const std::shared_ptr<Job>& job, const Choices& choices) {
  Evaluation evaluation = evaluate(Plan{job, choices});
  sim::SimulationOptions options;
  options.keep_timeline = false;
  evaluation.simulation = sim::simulate(evaluation.plan, options);
  return evaluation;
}

TEST_CASE("replicas with a quarter and three quarters of the batch compute one to three, the update aside") {
  const auto job = make_job("gpt2", "dgx-a100", 2, 64, 1024);
  Choices choices;
  choices.dp = 2;
  choices.replica_batches = {16, 48};
  const Evaluation evaluation = simulated(job, choices);
  const Load load = load_of(evaluation);
  REQUIRE(load.replicas.size() == 2);
  CHECK(load.replicas[0].samples == 16);
  CHECK(load.replicas[1].samples == 48);
  CHECK(load.replicas[1].count == 1);
  const double a = load.replicas[0].compute_s;
  const double b = load.replicas[1].compute_s;
  // a = update + 16 samples, b = update + 48 samples: 3 a - b = 2 x update, which is small beside a step.
  CHECK(3 * a - b >= 0);
  CHECK(3 * a - b < 0.2 * a);
  CHECK(load.replica_compute_std_s == Approx((b - a) / 2));
  CHECK(load.stages.size() == 1);
  CHECK(load.stages[0].compute_s == Approx((a + b) / 2));
  CHECK(load.stages[0].layers == 12);
  CHECK(load.stage_compute_std_s == 0);
  CHECK_THAT(uneven_load(load), Catch::Contains("16 samples, replica 0") && Catch::Contains("replica 1"));
}

TEST_CASE("stages of seven and five layers differ by two layers, and the fullest is the plan's") {
  const auto job = make_job("gpt2", "dgx-a100", 4, 8, 1024);
  Choices choices;
  choices.pp = 2;
  choices.dp = 2;
  choices.stage_layers = {7, 5};
  const Evaluation evaluation = simulated(job, choices);
  const Load load = load_of(evaluation);
  REQUIRE(load.stages.size() == 2);
  CHECK(load.stages[0].layers == 7);
  CHECK(load.stages[1].layers == 5);
  CHECK(load.stage_compute_std_s ==
        Approx(std::abs(load.stages[0].compute_s - load.stages[1].compute_s) / 2));
  CHECK(load.stage_memory_std_bytes ==
        Approx(std::abs(load.stages[0].memory_bytes - load.stages[1].memory_bytes) / 2));
  CHECK(std::max(load.stages[0].memory_bytes, load.stages[1].memory_bytes) == evaluation.memory.total);
  // Replicas are alike: one entry for both, and nothing to say of them.
  REQUIRE(load.replicas.size() == 1);
  CHECK(load.replicas[0].count == 2);
  CHECK_THAT(uneven_load(load), Catch::Contains("stages") && !Catch::Contains("replica"));
}

TEST_CASE("where all do the same there is nothing to say") {
  const auto job = make_job("gpt2", "dgx-a100", 2, 4, 256);
  Choices choices;
  choices.dp = 2;
  const Load load = load_of(simulated(job, choices));
  CHECK(load.stage_compute_std_s == 0);
  CHECK(load.replica_compute_std_s == 0);
  CHECK(uneven_load(load).empty());
  CHECK(load.replicas[0].count == 2);
}

TEST_CASE("asynchronous workers that the network holds up are said to train little") {
  Load load;
  load.replicas = {{0, 1, 16, 9.0}, {1, 3, 16, 1.0}};
  CHECK_THAT(few_workers(load), Catch::Contains("1 of the 4 workers do 75% of the work"));
  load.replicas = {{0, 1, 16, 1.0}, {1, 3, 16, 0.6}};
  CHECK(few_workers(load).empty());
}

}  // namespace
}  // namespace orrery::planner
