// Pipelines: what stages send each other, under each schedule.
#include <algorithm>
#include <catch2/catch.hpp>

#include "program/placement.h"
#include "program/schedule.h"
#include "tests/program/lower/lowered.h"

using namespace orrery;
using orrery::test::count;
using orrery::test::parameters;
using orrery::test::small_plan;
using orrery::test::SmallModel;
using orrery::test::sum;
using orrery::test::verify;

TEST_CASE("a pipeline sends each boundary's activation and gradient once a micro-batch") {
  for (const Schedule schedule : {Schedule::gpipe, Schedule::one_f_one_b, Schedule::zero_bubble}) {
    Choices choices;
    choices.pp = 4;
    choices.schedule = schedule;
    SmallModel model;
    const Plan plan = small_plan(choices, 5, model);
    verify(plan);
    const double activation = 8.0 * model.hidden * 4;
    for (int stage = 0; stage < 4; ++stage) {
      const Program program = lower(plan, stage);
      const double sent = sum(program, [](const Instruction& instruction) {
        return instruction.op == Op::exchange && instruction.transfers[0].send;
      });
      CHECK(sent == 5 * activation * ((stage < 3 ? 1 : 0) + (stage > 0 ? 1 : 0)));
    }
  }
}

TEST_CASE("interleaving sends as many times more as there are chunks") {
  Choices choices;
  choices.pp = 2;
  choices.schedule = Schedule::interleaved;
  choices.interleave = 2;
  SmallModel model;
  const Plan plan = small_plan(choices, 4, model);
  verify(plan);
  const double activation = 8.0 * model.hidden * 4;
  for (int stage = 0; stage < 2; ++stage) {
    const double sent = sum(lower(plan, stage), [](const Instruction& instruction) {
      return instruction.op == Op::exchange && instruction.transfers[0].send;
    });
    // Four parts, three boundaries, each crossed both ways: stage 0 sends two forward and one back.
    CHECK(sent == 4 * activation * 3);
  }
}

namespace {

Choices dualpipe_v(int stages) {
  Choices choices;
  choices.pp = stages;
  choices.schedule = Schedule::dualpipe_v;
  choices.interleave = 2;
  return choices;
}

}  // namespace

TEST_CASE("in a V nothing is sent where the model turns, and both ends are loaded once") {
  // From six stages on they deadlock where what goes down and what comes back share streams.
  for (const int stages : {2, 3, 4, 6, 8}) {
    for (const int micro_batches : {2 * stages, 3 * stages + 1}) {
      CAPTURE(stages, micro_batches);
      SmallModel model;
      model.layers = 2 * stages;
      const Plan plan = small_plan(dualpipe_v(stages), micro_batches, model);
      verify(plan);
      const double activation = 8.0 * model.hidden * 4;
      for (int stage = 0; stage < stages; ++stage) {
        const Program program = lower(plan, stage);
        const double sent = sum(program, [](const Instruction& instruction) {
          return instruction.op == Op::exchange && instruction.transfers[0].send;
        });
        // Two chunks, there and back, to each neighbour.
        const int neighbours = (stage > 0 ? 1 : 0) + (stage + 1 < stages ? 1 : 0);
        CHECK(sent == micro_batches * activation * 2 * neighbours);
        const int loads =
            count(program, [](const Instruction& instruction) { return instruction.op == Op::load; });
        CHECK(loads == (stage == 0 ? micro_batches : 0));
      }
    }
  }
}

TEST_CASE("in a V a tied embedding is one tensor, reduced once, after both ends of the last micro-batch") {
  Choices choices = dualpipe_v(2);
  choices.dp = 2;
  for (const int zero : {0, 1, 2, 3}) {
    CAPTURE(zero);
    choices.zero = zero;
    SmallModel model;
    model.layers = 4;
    const Plan plan = small_plan(choices, 5, model);
    verify(plan);
    const Program program = lower(plan, 0);
    CHECK(count(program, [](const Instruction& instruction) {
            return !instruction.writes.empty() && instruction.writes[0].kind == TensorKind::tied_gradient;
          }) == 0);
    for (std::size_t bucket = 0; bucket < program.buckets.size(); ++bucket) {
      int reduced = 0;
      bool added_later = false;
      for (const Instruction& instruction : program.instructions) {
        const bool of_bucket =
            std::any_of(instruction.writes.begin(), instruction.writes.end(), [&](const TensorRef& tensor) {
              return tensor.kind == TensorKind::gradients && tensor.index == static_cast<int>(bucket);
            });
        if (!of_bucket) continue;
        if (instruction.op == Op::collective && instruction.stream == Stream::data) ++reduced;
        if (instruction.op == Op::compute && zero < 2) added_later |= reduced > 0;
      }
      CHECK(reduced == (zero < 2 ? 1 : 5));
      CHECK_FALSE(added_later);
    }
  }
}

TEST_CASE("dualpipe-v under every form of parallelism deadlocks nowhere and races with nothing") {
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
    for (const int form : {0, 1, 2, 3}) {
      CAPTURE(static_cast<int>(recompute), form);
      Choices choices = dualpipe_v(3);
      choices.recompute = recompute;
      choices.zero = form;
      choices.dp = 2;
      if (form == 1) choices.tp = 2, choices.sequence_parallel = true;
      if (form == 2) choices.cp = 2, choices.overlap_grad_reduce = false;
      SmallModel model;
      model.layers = 7;
      if (form != 2) model.experts = 4, choices.ep = 2;
      for (const bool overlap : {false, true}) {
        if (overlap && (choices.ep == 1 || choices.zero == 3)) continue;
        choices.overlap_experts = overlap;
        verify(small_plan(choices, 6, model));
        verify(small_plan(choices, 9, model));
      }
    }
  }
}

TEST_CASE("dualpipe-v's pairs compute one chunk while the other's tokens travel") {
  Choices choices = dualpipe_v(2);
  choices.dp = 2;
  choices.ep = 2;
  choices.overlap_experts = true;
  SmallModel model;
  model.layers = 4;
  model.experts = 4;
  const Plan plan = small_plan(choices, 6, model);
  const Program program = lower(plan, 0);
  // Right behind an all-to-all of one micro-batch stands the other's computation.
  int beside = 0;
  for (std::size_t i = 0; i + 1 < program.instructions.size(); ++i) {
    const Instruction& travels = program.instructions[i];
    const Instruction& next = program.instructions[i + 1];
    if (travels.stream == Stream::expert && next.stream == Stream::compute &&
        next.micro_batch != travels.micro_batch)
      ++beside;
  }
  const int pairs = paired_slots(plan, 0, 6);
  CHECK(pairs == 7);
  CHECK(beside >= 4 * pairs);  // a layer there, a layer back, and both ways of each
}

TEST_CASE("the tied embedding is summed over the first and the last stage, once") {
  Choices choices;
  choices.pp = 3;
  choices.dp = 2;
  const Plan plan = small_plan(choices, 2);
  verify(plan);
  for (const int stage : {0, 1, 2}) {
    const Program program = lower(plan, rank_of(plan, {0, 0, 0, 1, stage}));
    const int sums = count(program, [](const Instruction& instruction) {
      return !instruction.writes.empty() && instruction.writes[0].kind == TensorKind::tied_gradient;
    });
    CHECK(sums == (stage == 1 ? 0 : 1));
  }
  // On one stage it is one tensor.
  Choices alone;
  const Program program = lower(small_plan(alone, 2), 0);
  double elements = 0;
  const Workload workload = test::small_workload({});
  for (const Operator& op : workload.operators) {
    for (const ParameterTensor& tensor : op.parameters) {
      if (tensor.tied_to.empty()) elements += static_cast<double>(tensor.elements());
    }
  }
  CHECK(parameters(program) == elements);
}

TEST_CASE("zero-bubble splits the backward pass and reduces after the weights' part") {
  Choices choices;
  choices.pp = 3;
  choices.dp = 2;
  choices.tp = 2;
  choices.schedule = Schedule::zero_bubble;
  for (const int zero : {0, 2, 3}) {
    choices.zero = zero;
    choices.sequence_parallel = zero == 2;
    choices.recompute = zero == 3 ? Recompute::full : Recompute::none;
    const Plan plan = small_plan(choices, 5);
    verify(plan);
    const Program program = lower(plan, 0);
    const auto of = [&](ComputeKind kind) {
      return count(program, [kind](const Instruction& instruction) {
        return instruction.op == Op::compute && instruction.compute == kind;
      });
    };
    CHECK(of(ComputeKind::backward) == 0);
    CHECK(of(ComputeKind::backward_input) > 0);
    CHECK(of(ComputeKind::backward_weight) == 5 * 3);  // embedding and two layers
  }
}

TEST_CASE("a runtime without pipeline overlap computes nothing while messages travel") {
  for (const Schedule schedule : {Schedule::gpipe, Schedule::one_f_one_b}) {
    Choices choices;
    choices.pp = 4;
    choices.schedule = schedule;
    auto job = test::small_job({}, 6);
    job->runtime.overlap_pipeline = false;
    const Plan plan{job, choices};
    verify(plan);
    const Program program = lower(plan, 1);
    std::int64_t waiting = -1;
    int together = 0;
    for (std::size_t i = 0; i < program.instructions.size(); ++i) {
      const Instruction& instruction = program.instructions[i];
      if (instruction.op == Op::exchange) {
        waiting = static_cast<std::int64_t>(i);
        together += instruction.transfers.size() == 2 ? 1 : 0;
      } else if (waiting >= 0 && instruction.stream == Stream::compute &&
                 instruction.compute != ComputeKind::optimizer) {
        CHECK(std::count(instruction.after.begin(), instruction.after.end(),
                         static_cast<std::uint32_t>(waiting)) == 1);
        waiting = -1;
      }
    }
    CHECK(together > 6);
  }
}
