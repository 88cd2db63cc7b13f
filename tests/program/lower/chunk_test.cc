// The passes of a model chunk: the work of an operator, however it is split.
#include <catch2/catch.hpp>

#include "tests/program/lower/lowered.h"

using namespace orrery;
using orrery::test::flops_of;
using orrery::test::lower_all;
using orrery::test::small_plan;
using orrery::test::SmallModel;

TEST_CASE("the same work is done however it is split") {
  const auto total = [](const Plan& plan) {
    double flops = 0;
    for (const Program& program : lower_all(plan))
      flops += flops_of(program, [](ComputeKind) { return true; });
    return flops;
  };
  SmallModel model;
  model.vocab = 64;
  const double serial = total(small_plan({}, 8, model));
  for (const Schedule schedule : {Schedule::gpipe, Schedule::one_f_one_b, Schedule::zero_bubble}) {
    Choices choices;
    choices.tp = 2;
    choices.pp = 2;
    choices.dp = 2;
    choices.schedule = schedule;
    CHECK(total(small_plan(choices, 4, model)) == Approx(serial).epsilon(1e-9));
  }
  Choices context;
  context.cp = 4;
  CHECK(total(small_plan(context, 8, model)) == Approx(serial).epsilon(1e-9));
}
