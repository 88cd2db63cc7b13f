// What is promised of every plan holds for those of all strategies, whichever devices are slow.
#include <catch2/catch.hpp>

#include "base/random.h"
#include "compare/compare.h"
#include "planner/closed_form/estimator.h"
#include "tests/support/jobs.h"

namespace orrery::comparison {
namespace {

// Eight devices, each sound or at a tenth to nine tenths of its speed.
void slow_some(Cluster* cluster, const CounterRandom& random) {
  std::uint64_t at = 0;
  for (int device = 0; device < cluster->devices(); ++device) {
    if (random.uniform(at++) < 0.6) continue;
    const DevicePlace place = cluster->place(device);
    cluster->overrides.push_back(
        {place.node, place.local, 0, OverrideTarget::device, 0.1 + 0.8 * random.uniform(at++)});
  }
}

TEST_CASE("no strategy's simulated step is below its bound, whichever single devices are slow") {
  const auto strategies = parse_strategies(
      "ddp,horovod,horovod-hierarchical,multi-worker-mirrored,fsdp,hsdp,deepspeed-zero2,megatron,ps-sync,"
      "ps-async,ps-bounded");
  int checked = 0;
  for (std::uint64_t draw = 0; draw < 12; ++draw) {
    auto job =
        test::make_job("resnet50", draw % 2 == 0 ? "dgx-v100-32g" : "v100-ib100", 8, 256, 0, "pytorch-ddp");
    job->training.precision = DType::fp16;
    slow_some(&job->cluster, CounterRandom(17, draw));
    double slowest = 1;
    for (int device = 0; device < 8; ++device) slowest = std::min(slowest, job->cluster.device_speed(device));
    Base base;
    base.job = job;
    std::vector<Asked> asked;
    for (const Strategy& strategy : strategies) asked.push_back({&strategy, job});
    const std::vector<Way> ways = ways_of(base, asked);
    for (std::size_t i = 0; i < ways.size(); ++i) {
      if (!ways[i].possible()) continue;
      CAPTURE(draw, strategies[i].name, slowest);
      planner::Estimator estimator(ways[i].plan->job);
      const double bound_s = estimator.lower_bound_s(ways[i].plan->choices);
      // Whom a slow device does not hold up has no bound where devices are heterogeneous.
      CHECK((bound_s > 0 || ways[i].plan->choices.asynchronous()));
      CHECK(bound_s <= 1.000001 * ways[i].step_s);
      // Who waits for all waits for the slowest: by hand, a sound one's computation at that speed. Others
      // update a share of the parameters each.
      const Choices& choices = ways[i].plan->choices;
      if (choices.zero == 0 && !choices.has_servers())
        CHECK(ways[i].step_s >= ways[i].compute_s[0] * job->cluster.device_speed(0) / slowest * (1 - 1e-9));
      for (const RankTimes& rank : ways[i].ranks)
        CHECK(rank.compute_s + rank.exposed_s + rank.waiting_s + rank.other_s ==
              Approx(ways[i].step_s).epsilon(1e-6));
      ++checked;
    }
  }
  CHECK(checked >= 110);
}

}  // namespace
}  // namespace orrery::comparison
