// What grows with the cluster (docs/accuracy.md): in the simulator as in the closed form, and in both the
// right way.
#include <catch2/catch.hpp>
#include <functional>

#include "cost/compute_cost.h"
#include "planner/closed_form/estimator.h"
#include "program/lower/lowering.h"
#include "sim/simulator.h"
#include "tests/support/jobs.h"

using namespace orrery;

namespace {

using Change = std::function<void(Job&)>;

// ZeRO-3 of DeepSpeed as of 2021.
Plan sharded(const std::string& model, int devices, int micro_batch, const Change& change = {}) {
  const auto job = test::make_job(model, "dgx-a100", devices,
                                  static_cast<std::int64_t>(devices) * micro_batch, 2048, "megatron-lm-2022");
  job->runtime = load_runtime(ORRERY_SOURCE_DIR "/evidence/profiles/deepspeed-2021.textproto");
  if (change) change(*job);
  Plan plan{job, {}};
  plan.choices.dp = devices;
  plan.choices.micro_batch = micro_batch;
  plan.choices.zero = 3;
  plan.choices.recompute = Recompute::full;
  return plan;
}

// The simulation, when the closed form agrees with it and the bound is below it.
double agreed_s(const Plan& plan, double within) {
  const double simulated = sim::simulate(plan).step_time_s;
  const planner::StepTimes closed = planner::Estimator(plan.job).times(plan.choices);
  CHECK(closed.estimate_s == Approx(simulated).epsilon(within));
  CHECK(closed.lower_bound_s <= simulated * (1 + 1e-9));
  return simulated;
}

int gathers(const Program& program) {
  int count = 0;
  for (const Instruction& i : program.instructions)
    count += i.op == Op::collective && i.collective == CollectiveKind::all_gather ? 1 : 0;
  return count;
}

}  // namespace

TEST_CASE("tensors gathered on demand, by lists of pieces: simulator and closed form agree") {
  const auto ahead = [](Job& job) {
    job.runtime.gathers_on_demand = false;
    job.runtime.live_parameters = 0;
  };
  const auto in_one = [](Job& job) { job.runtime.piece_overhead_s = 0; };
  for (const int devices : {16, 256})
    for (const char* model : {"megatron-22b", "megatron-175b"}) {
      INFO(model << " on " << devices);
      const double old = agreed_s(sharded(model, devices, 1), 0.02);
      CHECK(agreed_s(sharded(model, devices, 1, ahead), 0.04) < old);
      CHECK(agreed_s(sharded(model, devices, 1, in_one), 0.02) < old);
    }
}

TEST_CASE("a layer of more parameters than stay gathered is gathered again for its backward pass") {
  const auto all_stay = [](Job& job) { job.runtime.live_parameters = 1e10; };
  const auto by_layer = [](Job& job) {
    job.runtime.live_parameters = 1e10;
    job.runtime.gathers_by_tensor = false;
  };
  const Plan plan = sharded("megatron-175b", 16, 1);
  const int layers = plan.job->workload.layers;
  const int once = gathers(lower(sharded("megatron-175b", 16, 1, all_stay), 0));
  // Attention's two products and the MLP's first; its second is used at once.
  CHECK(gathers(lower(plan, 0)) == once + 3 * layers);
  // Four tensors a layer, forward and back but for the last layer, which stays; and the embedding's two.
  const int whole = gathers(lower(sharded("megatron-175b", 16, 1, by_layer), 0));
  CHECK(once - whole >= 3 * (2 * layers - 1));
  CHECK(once - whole <= 3 * (2 * layers - 1) + 4);
}

TEST_CASE("ZeRO-3 as of 2021 falls behind 3-D parallelism as the cluster grows") {
  double last = 0;
  for (const int devices : {384, 768, 1536}) {
    Plan three_d{test::make_job("megatron-175b", "dgx-a100", devices, 1536, 2048, "megatron-lm-2022"), {}};
    three_d.choices.tp = 8;
    three_d.choices.pp = 12;
    three_d.choices.dp = devices / 96;
    three_d.choices.recompute = Recompute::full;
    const Plan zero = sharded("megatron-175b", devices, 1536 / devices);
    const double ratio = planner::Estimator(zero.job).times(zero.choices).estimate_s /
                         planner::Estimator(three_d.job).times(three_d.choices).estimate_s;
    CHECK(ratio > 1);
    CHECK(ratio > last);
    last = ratio;
  }
}

TEST_CASE("the slowest of more devices is slower, of eight it is what the profile says") {
  const auto pace = [](int devices) {
    const Cluster cluster = with_devices(load_cluster("dgx-a100"), devices);
    return slowest_of(cluster, cluster.profiles[0]);
  };
  CHECK(pace(1) == 1);
  CHECK(pace(8) == 1);
  double last = 1;
  for (const int devices : {16, 64, 256, 1024, 16384}) {
    CHECK(pace(devices) > last);
    last = pace(devices);
  }
  // The expected largest of 8 and of 1,024 normal draws: 1.42 and 3.24 (tables of order statistics).
  const double spread = load_cluster("dgx-a100").profiles[0].speed_spread;
  CHECK(pace(1024) == Approx(1 + spread * (3.24 - 1.42)).epsilon(0.002));
}

TEST_CASE("what is hidden slows what hides it, in both clocks") {
  for (const int zero : {0, 1, 2, 3}) {
    INFO("zero " << zero);
    const auto step_s = [&](bool slows) {
      const auto job = test::make_job("gpt3-7b", "dgx-a100", 32, 128, 2048, "llm-foundry-fsdp");
      if (!slows) job->cluster.profiles[0].overlap_slowdown = 0;
      Plan plan{job, {}};
      plan.choices.dp = 32;
      plan.choices.micro_batch = 4;
      plan.choices.zero = zero;
      plan.choices.bucket_bytes = 1e8;
      return agreed_s(plan, 0.02);
    };
    CHECK(step_s(true) > step_s(false));
  }
}

TEST_CASE("owners that broadcast one after another take longer the more they are") {
  const auto step_s = [](int devices, bool broadcasts, int group) {
    const auto job = test::make_job("llama2-7b", "dgx-a100", devices, devices * 8, 2048);
    job->runtime = load_runtime(ORRERY_SOURCE_DIR "/evidence/profiles/internevo.textproto");
    job->runtime.updates_by_broadcast = broadcasts;
    Plan plan{job, {}};
    plan.choices.dp = devices;
    plan.choices.micro_batch = 2;
    plan.choices.zero = 1;
    plan.choices.shard_group = group;
    return agreed_s(plan, 0.02);
  };
  double last = 0;
  for (const int devices : {16, 64, 256}) {
    const double lost = step_s(devices, true, 0) - step_s(devices, false, 0);
    CHECK(lost > last);
    last = lost;
  }
  // In groups of a node there are as many owners on any cluster.
  CHECK(step_s(256, true, 8) - step_s(256, false, 8) ==
        Approx(step_s(16, true, 8) - step_s(16, false, 8)).margin(1e-3));
}
