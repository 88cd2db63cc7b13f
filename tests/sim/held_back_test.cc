#include <catch2/catch.hpp>

#include "sim/simulator.h"
#include "topologies/readers/catalog.h"
#include "topologies/readers/discover.h"
#include "workloads/readers/catalog.h"

using namespace orrery;

// Ring attention, ZeRO-3 and several micro-batches on processors that share a host: a gathering that moves is
// held back whenever its rank computes. SimGrid 3.32 never moved such a transfer again, and the simulation
// stalled.
TEST_CASE("a payload that compute holds back arrives after all") {
  auto job = std::make_shared<Job>();
  job->workload = load_workload("gpt2");
  job->cluster = with_devices(discover_uncalibrated_localhost(), 2);
  job->runtime = catalog_runtime("orrery");
  job->training.global_batch = 4;
  job->training.seq_len = 64;
  job->training.precision = DType::fp32;
  Plan plan;
  plan.job = job;
  plan.choices.cp = 2;
  plan.choices.zero = 3;
  plan.choices.micro_batch = 2;
  plan.choices.overlap_grad_reduce = false;
  check_plan(plan);
  for (const bool fold : {true, false}) {
    sim::SimulationOptions options;
    options.fold = fold;
    CHECK(sim::simulate(plan, options).step_time_s > 0);
  }
}
