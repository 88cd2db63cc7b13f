// Context parallelism: keys and values travelling round the ring.
#include <catch2/catch.hpp>

#include "tests/program/lower/lowered.h"

using namespace orrery;
using orrery::test::small_plan;
using orrery::test::SmallModel;
using orrery::test::sum;
using orrery::test::verify;

TEST_CASE("ring attention passes keys and values round, and their gradients home") {
  for (const int cp : {2, 4}) {
    Choices choices;
    choices.cp = cp;
    SmallModel model;
    const Plan plan = small_plan(choices, 3, model);
    verify(plan);
    const Program program = lower(plan, cp - 1);
    const double block = 8.0 / cp * 2 * model.hidden * 4;  // rows x (keys and values) x fp32
    const double sent = sum(program, [](const Instruction& instruction) {
      return instruction.op == Op::exchange && instruction.stream == Stream::context;
    });
    CHECK(sent == 3 * model.layers * block * (2 * (cp - 1) + cp));
    // Gradients are summed over the context group too.
    CHECK(program.groups[static_cast<std::size_t>(program.buckets[0].group)].ranks.size() ==
          static_cast<std::size_t>(cp));
  }
}

TEST_CASE("ring attention composes with the others") {
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
    for (const bool sequence_parallel : {false, true}) {
      Choices choices;
      choices.cp = 2;
      choices.tp = 2;
      choices.pp = 2;
      choices.dp = 2;
      choices.zero = 1;
      choices.recompute = recompute;
      choices.sequence_parallel = sequence_parallel;
      choices.schedule = recompute == Recompute::none ? Schedule::zero_bubble : Schedule::one_f_one_b;
      CAPTURE(static_cast<int>(recompute), sequence_parallel);
      verify(small_plan(choices, 3));
    }
  }
}
