// A step that the host's launches set is said to be the host's.
#include <catch2/catch.hpp>
#include <memory>

#include "planner/evaluation/evaluation.h"
#include "sim/simulator.h"
#include "tests/support/jobs.h"

namespace orrery::planner {
namespace {

Evaluation launched_in(double kernel_launch_s, std::int64_t batch) {
  auto job = std::make_shared<Job>(*test::make_job("gpt2", "dgx-h100", 1, batch, 1024, "megatron-core"));
  job->runtime.kernel_launch_s = kernel_launch_s;
  Choices choices;
  choices.micro_batch = 1;
  Evaluation evaluation = evaluate({job, choices});
  sim::SimulationOptions options;
  options.keep_timeline = false;
  options.condense = true;
  evaluation.simulation = sim::simulate(evaluation.plan, options);
  return evaluation;
}

}  // namespace

TEST_CASE("a step that takes as long as its launches is the host's, however many micro-batches it has") {
  for (const std::int64_t batch : {1, 64}) {
    const Evaluation slow = launched_in(1e-4, batch);
    CHECK(host_share(slow) > 0.9);
    CHECK(host_share(slow) < 1.001);
    CHECK(bound_by(slow).substr(0, 5) == "host ");
    const Evaluation quick = launched_in(1e-7, batch);
    CHECK(host_share(quick) == 0);
    CHECK(bound_by(quick).substr(0, 5) != "host ");
    // A thousandth of it.
    CHECK(quick.simulation->host_s == Approx(slow.simulation->host_s * 1e-3));
  }
}

}  // namespace orrery::planner
