// Recomputation: what is run once more.
#include <catch2/catch.hpp>

#include "tests/program/lower/lowered.h"

using namespace orrery;
using orrery::test::flops_of;
using orrery::test::small_plan;
using orrery::test::verify;

TEST_CASE("recomputation runs what was forgotten once more") {
  const auto recomputed = [](Recompute recompute, int layers) {
    Choices choices;
    choices.recompute = recompute;
    choices.recompute_layers = layers;
    const Plan plan = small_plan(choices, 2);
    verify(plan);
    return lower(plan, 0);
  };
  const auto forward = [](ComputeKind kind) { return kind == ComputeKind::forward; };
  const auto again = [](ComputeKind kind) { return kind == ComputeKind::recompute; };
  const Program none = recomputed(Recompute::none, 0);
  CHECK(flops_of(none, again) == 0);
  const Program full = recomputed(Recompute::full, 0);
  double layers = 0;
  for (const Instruction& instruction : full.instructions) {
    const bool layer = instruction.op_begin > 0 && instruction.op_end <= 41;
    if (instruction.op == Op::compute && instruction.compute == ComputeKind::forward && layer) {
      layers += instruction.flops;
    }
  }
  CHECK(flops_of(full, again) == Approx(layers));
  CHECK(flops_of(full, again) < flops_of(full, forward));
  CHECK(flops_of(recomputed(Recompute::full, 1), again) == Approx(layers / 4));
  CHECK(flops_of(recomputed(Recompute::selective, 0), again) > 0);
  CHECK(flops_of(recomputed(Recompute::selective, 0), again) < layers / 4);
}
