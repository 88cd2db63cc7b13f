// Pipelines cut anew, by numbers that are worked out by hand.
#include "compare/recut.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "base/error.h"
#include "sim/simulator.h"
#include "tests/support/jobs.h"

namespace orrery::comparison {
namespace {

// Twelve layers of a second each in two stages of one device, four micro-batches.
Pipeline twelve(double second_stage) {
  Pipeline pipeline;
  pipeline.layer_s.assign(12, 1);
  pipeline.cut = {6, 6};
  pipeline.speeds = {1, second_stage};
  pipeline.workers = {{0}, {1}};
  pipeline.micro_batches = 4;
  return pipeline;
}

TEST_CASE("a stage at half its speed gives two of its six layers away") {
  const Recut even = recut(Cutting::even, twelve(0.5), 3, {}, 1);
  CHECK(even.steps[0].busy_s == std::vector<double>{6, 12});
  CHECK(even.std_s == Approx(3));
  CHECK(even.max_over_mean == Approx(12.0 / 9));
  CHECK(even.step_s == Approx(3 * 12 / 4.0 + (6 + 12) / 4.0));  // one of four micro-batches passes both
  for (const Cutting cutting : {Cutting::by_speed, Cutting::dynamic}) {
    const Recut cut = recut(cutting, twelve(0.5), 3, {}, 1);
    CHECK(cut.steps[0].longest_s == 12);  // nothing is known yet
    CHECK(cut.steps[1].layers == std::vector<int>{8, 4});
    CHECK(cut.steps[1].busy_s == std::vector<double>{8, 8});
    CHECK(cut.steps[1].moved == 2);
    CHECK(cut.steps[2].moved == 0);
    CHECK(cut.std_s == Approx(0).margin(1e-12));
    CHECK(cut.max_over_mean == Approx(1));
    CHECK(cut.step_s == Approx(10));
  }
}

TEST_CASE("cuts follow a speed that changes a step later, what was cut for good does not") {
  Trouble trouble;
  trouble.kind = TroubleKind::on_off;
  trouble.at = 1;
  trouble.speed = 0.5;
  trouble.on_s = trouble.off_s = 2000;
  const auto longest_s = [&](Cutting cutting) {
    return recut(cutting, twelve(1), 400, {trouble}, 5).longest_s;
  };
  // Sound 6, slow at best 8, uncut 12.
  CHECK(longest_s(Cutting::dynamic) < 0.9 * longest_s(Cutting::even));
  CHECK(longest_s(Cutting::dynamic) < 0.95 * longest_s(Cutting::by_speed));
  CHECK(longest_s(Cutting::dynamic) > 6);
  CHECK(longest_s(Cutting::dynamic) < 8);
}

TEST_CASE("of cuts that are as fast the one with like stages is taken") {
  // The last layer takes five seconds: the others are dealt as if that were not there.
  Pipeline pipeline;
  pipeline.layer_s = {1, 1, 1, 1, 1, 1, 5};
  pipeline.cut = {3, 2, 2};
  pipeline.speeds = {1, 1, 1};
  pipeline.workers = {{0}, {1}, {2}};
  const Recut cut = recut(Cutting::dynamic, pipeline, 2, {}, 1);
  CHECK(cut.steps[1].layers == std::vector<int>{3, 3, 1});
  CHECK(cut.steps[1].longest_s == 5);
}

TEST_CASE("layers that lie elsewhere are those that move") {
  CHECK(moved_layers({6, 6}, {8, 4}) == 2);
  CHECK(moved_layers({4, 4, 4}, {6, 4, 2}) == 2 + 2);
  CHECK(moved_layers({4, 4, 4}, {4, 4, 4}) == 0);
}

TEST_CASE("a pipeline with a slow device is cut by its speed, and the simulated step says so") {
  auto job = test::make_job("gpt2", "dgx-a100", 4, 64, 512);
  Base base;
  base.job = job;
  const Trouble slow = parse_trouble("slow-device=3:0.5", job->cluster);
  const std::vector<Recut> all = recuts(base, 4, 5, {slow}, 1);
  REQUIRE(all.size() == 3);
  const Recut& even = all[0];
  const Recut& cut = all[1];
  // Twelve layers, the head with the last: three each; the slow one keeps one, and the head.
  CHECK(even.steps.back().layers == std::vector<int>{3, 3, 3, 3});
  CHECK(cut.steps.back().layers[3] < 3);
  CHECK(cut.longest_s < 0.9 * even.longest_s);
  CHECK(cut.std_s < even.std_s);
  // SimGrid's steps, of the very cuts: as much shorter.
  REQUIRE(even.simulated_s);
  REQUIRE(cut.simulated_s);
  CHECK(*cut.simulated_s / *even.simulated_s == Approx(cut.step_s / even.step_s).epsilon(0.05));
  CHECK(even.step_s == Approx(*even.simulated_s).epsilon(0.05));
  CHECK_THROWS_AS(recuts(base, 3, 5, {}, 1), UserError);
  CHECK_THROWS_AS(recuts(base, 16, 5, {}, 1), UserError);
}

}  // namespace
}  // namespace orrery::comparison
