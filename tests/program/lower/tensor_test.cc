// Tensor and sequence parallelism: what an operator split over ranks sends.
#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/program/lower/lowered.h"

using namespace orrery;
using orrery::test::collective_bytes;
using orrery::test::count;
using orrery::test::flops_of;
using orrery::test::small_plan;
using orrery::test::SmallModel;
using orrery::test::sum;
using orrery::test::verify;

TEST_CASE("tensor parallelism sums activations four times a layer") {
  // arXiv 1909.08053, section 3: two all-reduces forward, two backward.
  Choices choices;
  choices.tp = 2;
  SmallModel model;
  const Plan plan = small_plan(choices, 3, model);
  verify(plan);
  const Program program = lower(plan, 0);
  const double activation = 8.0 * model.hidden * 4;  // rows x hidden x fp32
  const double loss = 8.0 * (1 + 2) * 4;
  // And after the embedding, and on the gradient that the head gives the final norm.
  CHECK(collective_bytes(program, Stream::tensor, CollectiveKind::all_reduce) ==
        3 * (activation * (4 * model.layers + 2) + loss));
}

TEST_CASE(
    "sequence parallelism replaces each all-reduce by a gather and a scatter, and gathers again going back") {
  // arXiv 2205.05198, section 4.2.2: the same bytes as tensor parallelism; and one more gather for each
  // column-split product, whose input is kept as a shard.
  Choices choices;
  choices.tp = 2;
  choices.sequence_parallel = true;
  SmallModel model;
  const Plan plan = small_plan(choices, 1, model);
  verify(plan);
  const Program program = lower(plan, 0);
  const double activation = 8.0 * model.hidden * 4;
  CHECK(collective_bytes(program, Stream::tensor, CollectiveKind::reduce_scatter) ==
        activation * (4 * model.layers + 2));
  CHECK(collective_bytes(program, Stream::tensor, CollectiveKind::all_gather) ==
        activation * (4 * model.layers + 2 + 2 * model.layers + 1));
  // What the norms and row-split biases add up at the end: 2 norms and 2 biases a layer and the final norm.
  const double replicated = (model.layers * (2 * 2 + 2) + 2) * model.hidden * 4.0;
  CHECK(sum(program, [](const Instruction& instruction) {
          return !instruction.writes.empty() && instruction.writes[0].kind == TensorKind::replicated_gradient;
        }) == replicated);
}

TEST_CASE("a runtime that overlaps tensor communication reduces beside the weight's gradient") {
  const bool sequence_parallel = GENERATE(false, true);
  Choices choices;
  choices.tp = 2;
  choices.sequence_parallel = sequence_parallel;
  auto job = test::small_job({}, 2);
  job->runtime.overlap_tensor_backward = true;
  const Plan plan{job, choices};
  verify(plan);
  const Program program = lower(plan, 0);
  int beside = 0;
  for (std::size_t i = 0; i + 1 < program.instructions.size(); ++i) {
    const Instruction& next = program.instructions[i + 1];
    if (program.instructions[i].stream == Stream::tensor && next.op == Op::compute &&
        next.compute == ComputeKind::backward_weight) {
      CHECK(std::count(next.after.begin(), next.after.end(), static_cast<std::uint32_t>(i)) == 0);
      ++beside;
    }
  }
  CHECK(beside == 2 * 2 * 4);  // two products a layer in each micro-batch
  job->runtime.overlap_tensor_backward = false;
  const Program plain = lower(plan, 0);
  for (const CollectiveKind kind :
       {CollectiveKind::all_reduce, CollectiveKind::all_gather, CollectiveKind::reduce_scatter}) {
    CHECK(collective_bytes(plain, Stream::tensor, kind) == collective_bytes(program, Stream::tensor, kind));
  }
  const auto all = [](ComputeKind) { return true; };
  CHECK(flops_of(plain, all) == Approx(flops_of(program, all)));
}

TEST_CASE(
    "a runtime that overlaps tensor communication says beside which product each sequence collective "
    "travels") {
  Choices choices;
  choices.tp = 2;
  choices.sequence_parallel = true;
  auto job = test::small_job({}, 2);
  const auto marked = [&](bool overlap, bool sequence_parallel) {
    job->runtime.overlap_tensor = overlap;
    choices.sequence_parallel = sequence_parallel;
    const Plan plan{job, choices};
    verify(plan);
    int forward = 0, backward = 0;
    const Program program = lower(plan, 0);
    for (const Instruction& instruction : program.instructions) {
      if (instruction.op != Op::collective || instruction.op_end == instruction.op_begin) continue;
      const Operator& product = job->workload.operators[static_cast<std::size_t>(instruction.op_begin)];
      CHECK(instruction.op_end == instruction.op_begin + 1);
      CHECK(product.kind == OperatorKind::linear);
      // Gathered before a product that is split by columns, scattered behind one that is by rows.
      if (instruction.compute == ComputeKind::forward) {
        CHECK((instruction.collective == CollectiveKind::all_gather) ==
              (product.split == TensorSplit::column));
        ++forward;
      } else {
        CHECK(instruction.compute == ComputeKind::backward_input);
        CHECK(instruction.collective == CollectiveKind::all_gather);
        CHECK(product.split == TensorSplit::row);
        ++backward;
      }
    }
    return std::pair(forward, backward);
  };
  // Four products a layer going forward, two going back (of the others nothing is cut into pieces), of eight
  // layers' passes.
  CHECK(marked(true, true) == std::pair(4 * 2 * 4, 2 * 2 * 4));
  CHECK(marked(true, false) == std::pair(0, 0));
  CHECK(marked(false, true) == std::pair(0, 0));
}
