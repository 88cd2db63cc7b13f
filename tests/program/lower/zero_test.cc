// ZeRO: what is sharded, gathered and scattered, and how often.
#include <catch2/catch.hpp>

#include "tests/program/lower/lowered.h"

using namespace orrery;
using orrery::test::collective_bytes;
using orrery::test::count;
using orrery::test::parameters;
using orrery::test::small_plan;
using orrery::test::SmallModel;
using orrery::test::verify;

TEST_CASE("sharding sends parameters and gradients as often as the ZeRO paper says") {
  // arXiv 1910.02054, section 7: stages 1 and 2 send what all-reduce does (2 P), stage 3 half as much again.
  SmallModel model;
  model.tied = false;
  for (const int zero : {1, 2, 3}) {
    Choices choices;
    choices.dp = 4;
    choices.zero = zero;
    const Plan plan = small_plan(choices, 1, model);
    verify(plan);
    const Program program = lower(plan, 2);
    const double p = 4 * parameters(program);
    CAPTURE(zero);
    CHECK(collective_bytes(program, Stream::data, CollectiveKind::reduce_scatter) == p);
    double expected = p;
    if (zero == 3) {
      // Gathered going forward and back, but for the head's unit, which stays, and the embedding's, whose
      // backward reads no parameter.
      expected = 2 * p - 4 * static_cast<double>(program.buckets.front().elements) -
                 4 * static_cast<double>(program.buckets.back().elements);
    }
    CHECK(collective_bytes(program, Stream::data, CollectiveKind::all_gather) == expected);
  }
}

TEST_CASE("ZeRO-2 and 3 scatter gradients in every micro-batch, ZeRO-1 once") {
  for (const int zero : {1, 2, 3}) {
    Choices choices;
    choices.dp = 2;
    choices.zero = zero;
    const Program program = lower(small_plan(choices, 3), 0);
    const int scatters = count(program, [](const Instruction& instruction) {
      return instruction.op == Op::collective && instruction.collective == CollectiveKind::reduce_scatter;
    });
    CHECK(scatters == static_cast<int>(program.buckets.size()) * (zero == 1 ? 1 : 3));
  }
}

TEST_CASE("ZeRO-3 holds the parameters of two layers at once") {
  Choices choices;
  choices.dp = 2;
  choices.zero = 3;
  SmallModel model;
  model.tied = false;
  const Program program = lower(small_plan(choices, 2, model), 0);
  // Each gather but the first two waits for the computation of the layer before the one that computes
  // meanwhile.
  int gathers = 0;
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    if (instruction.op != Op::collective || instruction.collective != CollectiveKind::all_gather) continue;
    if (++gathers > 2) CHECK(instruction.after.size() == 1);
  }
  CHECK(gathers > 10);
}

TEST_CASE("hybrid sharding gathers inside the shard group and sums across") {
  for (const int zero : {1, 2, 3}) {
    Choices choices;
    choices.dp = 4;
    choices.zero = zero;
    choices.shard_group = 2;
    SmallModel model;
    model.tied = false;
    const Plan plan = small_plan(choices, 2, model);
    verify(plan);
    const Program program = lower(plan, 3);
    const double p = 4 * parameters(program);
    // Each rank sums its half over the two copies, once a step.
    CHECK(collective_bytes(program, Stream::data, CollectiveKind::all_reduce) == p / 2);
    for (const Instruction& instruction : program.instructions) {
      if (instruction.op != Op::collective) continue;
      const Group& group = program.groups[static_cast<std::size_t>(instruction.group)];
      CHECK(group.kind ==
            (instruction.collective == CollectiveKind::all_reduce ? GroupKind::replicate : GroupKind::shard));
    }
  }
}

TEST_CASE("a runtime that overlaps parameter gathering opens the step with it") {
  Choices choices;
  choices.dp = 2;
  choices.zero = 1;
  choices.bucket_bytes = 5000;
  auto job = test::small_job({}, 4);
  job->runtime.overlap_param_gather = true;
  const Plan plan{job, choices};
  verify(plan);
  const Program program = lower(plan, 0);
  CHECK(program.instructions.front().collective == CollectiveKind::all_gather);
  CHECK(program.instructions.back().compute == ComputeKind::optimizer);
  CHECK(collective_bytes(program, Stream::data, CollectiveKind::all_gather) == 4 * parameters(program));
}
