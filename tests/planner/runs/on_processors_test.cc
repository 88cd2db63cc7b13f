#include "planner/runs/on_processors.h"

#include <catch2/catch.hpp>

#include "planner/closed_form/figures.h"
#include "tests/support/jobs.h"

namespace orrery::planner {
namespace {

using test::make_job;

Plan replicas(int zero, int dp, const std::shared_ptr<Job>& job) {
  Choices choices;
  choices.dp = dp;
  choices.micro_batch = 1;
  choices.zero = zero;
  return {job, choices};
}

TEST_CASE("processors keep a plan's 16-bit numbers in 32 bits, and the optimizer's weights besides") {
  const auto job = make_job("gpt2", "dgx-a100", 4, 4, 1024);
  const Cluster here = load_cluster("localhost");
  const auto parameters = static_cast<double>(job->workload.parameters());
  CHECK(memory_on_processors(replicas(0, 4, job), here).state_bytes == Approx(4 * parameters * 20));
  CHECK(memory_on_processors(replicas(1, 4, job), here).state_bytes == Approx(parameters * (4 * 8 + 12)));
  CHECK(memory_on_processors(replicas(3, 4, job), here).state_bytes == Approx(parameters * 20));
  job->training.precision = DType::fp32;
  CHECK(memory_on_processors(replicas(0, 4, job), here).state_bytes == Approx(4 * parameters * 16));
}

TEST_CASE("a plan for processors keeps there what it is predicted to keep") {
  const auto job = make_job("gpt2", "localhost", 2, 4, 256, "orrery");
  const Plan plan = replicas(1, 2, job);
  CHECK(memory_on_processors(plan, job->cluster).bytes() == Approx(2 * predict_memory(plan).total));
  CHECK(step_seconds_on_processors(plan, job->cluster) == Approx(estimate_step_seconds(plan)));
}

TEST_CASE("one of several servers keeps its slice of the states, and a worker beside them none") {
  const auto job = make_job("gpt2", "localhost", 4, 4, 64, "orrery");
  Plan plan = replicas(0, 4, job);
  plan.choices.sync = Sync::parameter_server;
  plan.choices.servers = 2;
  const auto parameters = static_cast<double>(job->workload.parameters());
  CHECK(memory_on_processors(plan, job->cluster).state_bytes == Approx(parameters * (4 * 8 + 8)));
}

TEST_CASE("processors never hold all of attention's scores") {
  const auto job = make_job("gpt2", "localhost", 1, 1, 1024, "orrery");
  const auto short_job = make_job("gpt2", "localhost", 1, 2, 512, "orrery");
  Plan two = replicas(0, 1, short_job);
  two.choices.micro_batch = 2;
  CHECK_FALSE(job->training.fused_attention);
  // As many tokens in sequences half as long: only positions and scores differ.
  CHECK(predict_memory(replicas(0, 1, job)).activations == Approx(predict_memory(two).activations));
}

}  // namespace
}  // namespace orrery::planner
