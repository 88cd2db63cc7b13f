#include "sim/plan_bytes.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "cost/compute_cost.h"
#include "program/lower/lowering.h"
#include "tests/support/jobs.h"

using namespace orrery;

namespace {

// What a device does in a step, and how long each piece takes it.
std::vector<double> seconds_of(const Plan& plan) {
  const ComputeCost cost(plan, plan.job->cluster.profiles.front());
  const Program program = lower(plan, 0);
  std::vector<double> seconds;
  for (const Instruction& instruction : program.instructions)
    if (instruction.op == Op::compute) seconds.push_back(cost.seconds(program, instruction));
  return seconds;
}

}  // namespace

TEST_CASE("a plan of any workload of the catalog comes out of its bytes as it went in") {
  for (const WorkloadEntry& entry : catalog_workloads()) {
    INFO(entry.name);
    const int seq_len = load_workload(entry.name).default_seq_len;
    Plan plan{test::make_job(entry.name, "a100-eth100", 2, 8, seq_len), {}};
    plan.choices.dp = 2;
    plan.choices.zero = 1;
    plan.choices.bucket_bytes = 12345.678;
    sim::ByteWriter out;
    sim::write_plan(out, plan);
    sim::write_cluster(out, plan.job->cluster);
    const std::string bytes = out.take();
    sim::ByteReader in(bytes);
    const Plan back = sim::read_plan(in);
    CHECK(back.choices == plan.choices);
    CHECK(back.job->training.global_batch == plan.job->training.global_batch);
    CHECK(seconds_of(back) == seconds_of(plan));
    CHECK(sim::read_cluster(in).devices() == plan.job->cluster.devices());
  }
}
