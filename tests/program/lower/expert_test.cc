// Expert parallelism: where tokens travel, alone and with the other forms.
#include <catch2/catch.hpp>

#include "tests/program/lower/lowered.h"

using namespace orrery;
using orrery::test::collective_bytes;
using orrery::test::flops_of;
using orrery::test::lower_all;
using orrery::test::parameters;
using orrery::test::small_plan;
using orrery::test::SmallModel;
using orrery::test::verify;

TEST_CASE("expert parallelism sends every token's copies there and back, forward and backward") {
  SmallModel model;
  model.experts = 4;
  for (const int ep : {2, 4}) {
    Choices choices;
    choices.dp = 4;
    choices.ep = ep;
    const Plan plan = small_plan(choices, 2, model);
    verify(plan);
    const Program program = lower(plan, 1);
    const double copies = 8.0 * 2 * model.hidden * 4;  // rows x experts per token x hidden x fp32
    CHECK(collective_bytes(program, Stream::expert, CollectiveKind::all_to_all) ==
          2 * model.layers * 4 * copies);
    // Experts are reduced over the ranks that hold the same, everything else over all.
    for (const Bucket& bucket : program.buckets) {
      const ParameterTensor& tensor =
          plan.job->workload.operators[static_cast<std::size_t>(bucket.parameters[0].op)]
              .parameters[static_cast<std::size_t>(bucket.parameters[0].parameter)];
      if (bucket.group < 0) {
        CHECK((tensor.expert && ep == 4));
        continue;
      }
      CHECK(program.groups[static_cast<std::size_t>(bucket.group)].ranks.size() ==
            static_cast<std::size_t>(tensor.expert ? 4 / ep : 4));
    }
  }
}

TEST_CASE("expert parallelism composes with the others") {
  SmallModel model;
  model.experts = 4;
  for (const int zero : {0, 1, 2, 3}) {
    for (const bool sequence_parallel : {false, true}) {
      Choices choices;
      choices.dp = 4;
      choices.ep = 2;
      choices.tp = 2;
      choices.pp = 2;
      choices.zero = zero;
      choices.sequence_parallel = sequence_parallel;
      choices.recompute = zero == 2 ? Recompute::full : Recompute::none;
      CAPTURE(zero, sequence_parallel);
      verify(small_plan(choices, 2, model));
    }
  }
}

TEST_CASE("ranks that share experts gather their tokens and scatter the sums, or reduce what all have") {
  SmallModel model;
  model.experts = 4;
  for (const bool sequence_parallel : {false, true}) {
    for (const int etp : {1, 2, 4}) {
      Choices choices;
      choices.tp = 4;
      choices.dp = 2;
      choices.ep = 2;
      choices.etp = etp;
      choices.sequence_parallel = sequence_parallel;
      CAPTURE(sequence_parallel, etp);
      const Plan plan = small_plan(choices, 2, model);
      verify(plan);
      const Program program = lower(plan, 5);
      // Rows x experts per token x hidden x fp32 of one rank's tokens, by layers, both passes and
      // micro-batches.
      const double own = 8.0 / (sequence_parallel ? 4 : 1) * 2 * model.hidden * 4 * model.layers * 2 * 2;
      const auto sent = [&](CollectiveKind kind) { return collective_bytes(program, Stream::expert, kind); };
      CHECK(sent(CollectiveKind::all_to_all) == 2 * own);
      CHECK(sent(CollectiveKind::all_gather) == (sequence_parallel && etp > 1 ? etp * own : 0));
      CHECK(sent(CollectiveKind::reduce_scatter) == (sequence_parallel && etp > 1 ? etp * own : 0));
      CHECK(sent(CollectiveKind::all_reduce) == (!sequence_parallel && etp > 1 ? own : 0));
      // An expert's matrices are split; those that hold the same part are reduced together.
      for (const Bucket& bucket : program.buckets) {
        for (const BucketParameter& part : bucket.parameters) {
          const ParameterTensor& tensor = plan.job->workload.operators[static_cast<std::size_t>(part.op)]
                                              .parameters[static_cast<std::size_t>(part.parameter)];
          if (!tensor.expert) continue;
          CHECK(part.elements == tensor.elements() / (choices.ep * etp));
          const std::size_t members =
              bucket.group < 0 ? 1 : program.groups[static_cast<std::size_t>(bucket.group)].ranks.size();
          CHECK(members == static_cast<std::size_t>(sequence_parallel ? 4 / etp : 1));
        }
      }
    }
  }
}

TEST_CASE("experts that tensor ranks share are computed once in all, and compose with the others") {
  SmallModel model;
  model.experts = 4;
  const auto of_all = [&](const Choices& choices) {
    double flops = 0;
    for (const Program& program : lower_all(small_plan(choices, 8 / choices.dp, model)))
      flops += flops_of(program, [](ComputeKind kind) { return kind != ComputeKind::optimizer; });
    return flops;
  };
  const double serial = of_all({});
  for (const int zero : {0, 1, 2, 3}) {
    for (const bool sequence_parallel : {false, true}) {
      for (const int ep : {1, 2}) {
        Choices choices;
        choices.dp = 2;
        choices.ep = ep;
        choices.tp = choices.etp = 2;
        choices.pp = 2;
        choices.zero = zero;
        choices.sequence_parallel = sequence_parallel;
        choices.schedule = zero == 1 ? Schedule::zero_bubble : Schedule::one_f_one_b;
        CAPTURE(zero, sequence_parallel, ep);
        verify(small_plan(choices, 4, model));
        if (sequence_parallel) CHECK(of_all(choices) == Approx(serial).epsilon(1e-9));
        choices.recompute = Recompute::full;
        choices.cp = 2;
        verify(small_plan(choices, 4, model));
      }
    }
  }
}
