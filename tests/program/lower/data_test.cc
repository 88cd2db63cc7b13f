// Data parallelism: what replicas reduce, and what each of them does alone.
#include <catch2/catch.hpp>

#include "program/placement.h"
#include "tests/program/lower/lowered.h"

using namespace orrery;
using orrery::test::collective_bytes;
using orrery::test::count;
using orrery::test::equal_up_to_peers;
using orrery::test::lower_all;
using orrery::test::parameters;
using orrery::test::small_plan;
using orrery::test::verify;

TEST_CASE("data parallelism reduces each parameter once, whatever the micro-batches") {
  for (const std::int64_t micro_batches : {1, 4}) {
    Choices choices;
    choices.dp = 3;
    choices.bucket_bytes = 4000;
    const Plan plan = small_plan(choices, micro_batches);
    verify(plan);
    const Program program = lower(plan, 1);
    // An all-reduce's buffer is the gradients in fp32: a ring sends 2 (n - 1) / n of it.
    CHECK(collective_bytes(program, Stream::data, CollectiveKind::all_reduce) == 4 * parameters(program));
  }
}

TEST_CASE("buckets stand in reverse, hold what fits and are reduced as the backward pass completes them") {
  Choices choices;
  choices.dp = 2;
  choices.bucket_bytes = 13000;
  const Program program = lower(small_plan(choices, 1), 0);
  REQUIRE(program.buckets.size() > 2);
  int last_op = 1 << 30;
  for (const Bucket& bucket : program.buckets) {
    CHECK(bucket.elements % 2 == 0);
    CHECK((bucket.parameters.size() == 1 || static_cast<double>(bucket.elements) * 4 <= 13000 + 4));
    for (const BucketParameter& parameter : bucket.parameters) {
      CHECK(parameter.op <= last_op);
      last_op = parameter.op;
    }
  }
  // The first reduction is issued before the last backward: it overlaps.
  std::size_t first_reduction = 0;
  std::size_t last_backward = 0;
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    if (instruction.op == Op::collective && first_reduction == 0) first_reduction = i;
    if (instruction.op == Op::compute && instruction.compute == ComputeKind::backward) last_backward = i;
  }
  CHECK(first_reduction < last_backward);
  choices.overlap_grad_reduce = false;
  const Program after = lower(small_plan(choices, 1), 0);
  bool reduced = false;
  for (const Instruction& instruction : after.instructions) {
    reduced = reduced || instruction.op == Op::collective;
    if (reduced) CHECK_FALSE((instruction.op == Op::compute && instruction.compute == ComputeKind::backward));
  }
}

TEST_CASE("uneven replicas run as many micro-batches as they have samples") {
  Choices choices;
  choices.dp = 2;
  choices.zero = 1;
  choices.replica_batches = {1, 5};
  const Plan plan{test::small_job({}, 6), choices};
  verify(plan);
  const auto loads = [](const Program& program) {
    return count(program, [](const Instruction& instruction) { return instruction.op == Op::load; });
  };
  CHECK(loads(lower(plan, 0)) == 1);
  CHECK(loads(lower(plan, 1)) == 5);
}

TEST_CASE("ranks that differ only in data, tensor and context coordinates do the same") {
  Choices choices;
  choices.tp = 2;
  choices.cp = 2;
  choices.dp = 2;
  choices.pp = 2;
  choices.sequence_parallel = true;
  const Plan plan = small_plan(choices, 3);
  const auto programs = lower_all(plan);
  for (const Program& program : programs) {
    const int stage_first = rank_of(plan, {0, 0, 0, 0, program.at.pp});
    CHECK(equal_up_to_peers(program, programs[static_cast<std::size_t>(stage_first)]));
  }
}

TEST_CASE("samples on the nodes' storage are read for the next step, once, by those who load them") {
  Choices choices;
  choices.tp = 2;
  choices.dp = 2;
  choices.pp = 2;
  choices.micro_batch = 2;
  Plan plan = small_plan(choices, 8);
  auto job = std::make_shared<Job>(*plan.job);
  for (NodeGroup& group : job->cluster.groups) group.node.storage_read_bytes_per_s = 1e9;
  job->training.sample_bytes = 1000;
  plan.job = job;
  verify(plan);
  double read = 0;
  for (const Program& program : lower_all(plan)) {
    for (const Instruction& instruction : program.instructions) {
      if (instruction.op != Op::load || instruction.bytes == 0) continue;
      CHECK(program.at.pp == 0);
      CHECK(instruction.writes.front().kind == TensorKind::next_batch);
      read += instruction.bytes;
    }
  }
  CHECK(read == 1000 * static_cast<double>(job->training.global_batch));
}
