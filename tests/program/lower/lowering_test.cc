#include "program/lower/lowering.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>

#include "base/error.h"
#include "base/random.h"
#include "tests/support/small_plans.h"

using namespace orrery;
using orrery::test::lower_all;
using orrery::test::small_plan;
using orrery::test::SmallModel;

namespace {

Choices choose(int tp, int pp, int dp) {
  Choices choices;
  choices.tp = tp;
  choices.pp = pp;
  choices.dp = dp;
  return choices;
}

std::string dump(const Program& program) {
  std::string text;
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    text += std::to_string(i) + " [" + std::string(name_of(instruction.stream)) + "] " + label_of(program, i);
    for (const auto other : instruction.after) text += " <" + std::to_string(other);
    text += "\n";
  }
  return text;
}

void lower_and_verify(const Plan& plan) {
  check_plan(plan);
  const auto programs = lower_all(plan);
  try {
    verify_programs(programs);
  } catch (const InternalError& error) {
    const auto rank = static_cast<std::size_t>(std::atoi(error.what() + std::string_view("rank ").size()));
    FAIL(error.what() << "\n" << dump(programs[std::min(rank, programs.size() - 1)]));
  }
}

}  // namespace

TEST_CASE("one rank runs forward, backward and optimizer and communicates with no one") {
  const Plan plan = small_plan(choose(1, 1, 1), 2);
  lower_and_verify(plan);
  const Program program = lower(plan, 0);
  CHECK(program.groups.empty());
  for (const Instruction& instruction : program.instructions) {
    CHECK(instruction.op != Op::collective);
    CHECK(instruction.op != Op::exchange);
  }
  INFO(dump(program));
  // Two micro-batches of: a load, forward of embedding, four layers and the head, and their backwards.
  CHECK(program.instructions.size() == 2 * (1 + 6 + 6) + 1);
}

TEST_CASE("grids of plans pass the independent checker") {
  for (const int tp : {1, 2, 4}) {
    for (const int pp : {1, 2, 3, 4}) {
      for (const int dp : {1, 2, 3}) {
        for (const Schedule schedule : {Schedule::gpipe, Schedule::one_f_one_b}) {
          for (const int zero : {0, 1}) {
            Choices choices = choose(tp, pp, dp);
            choices.schedule = schedule;
            choices.zero = zero;
            choices.sequence_parallel = tp > 1 && zero == 1;
            choices.recompute = pp == 3 ? Recompute::full : Recompute::none;
            CAPTURE(tp, pp, dp, static_cast<int>(schedule), zero);
            lower_and_verify(small_plan(choices, 3));
          }
        }
      }
    }
  }
}

TEST_CASE("interleaved chunks, uneven cuts and every recomputation pass the checker") {
  SmallModel model;
  model.layers = 8;
  for (const int chunks : {2, 4}) {
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
      Choices choices = choose(2, 2, 2);
      choices.schedule = Schedule::interleaved;
      choices.interleave = chunks;
      choices.recompute = recompute;
      choices.recompute_layers = recompute == Recompute::full ? 3 : 0;
      choices.sequence_parallel = chunks == 4;
      choices.zero = 1;
      CAPTURE(chunks, static_cast<int>(recompute));
      lower_and_verify(small_plan(choices, 4, model));
    }
  }
  Choices choices = choose(1, 3, 1);
  choices.stage_layers = {1, 4, 3};
  lower_and_verify(small_plan(choices, 4, model));
}

TEST_CASE("random plans pass the checker") {
  const CounterRandom random(7, 0);
  std::uint64_t at = 0;
  const auto pick = [&](std::initializer_list<int> values) {
    return *(values.begin() + static_cast<std::ptrdiff_t>(random.bits(at++) % values.size()));
  };
  int lowered = 0;
  for (int trial = 0; trial < 400; ++trial) {
    SmallModel model;
    model.layers = pick({2, 3, 4, 6});
    model.tied = pick({0, 1}) == 1;
    Choices choices = choose(pick({1, 2, 4}), pick({1, 2, 3}), pick({1, 2, 3, 4}));
    choices.schedule = static_cast<Schedule>(pick({0, 1, 2, 3}));
    choices.interleave = choices.schedule == Schedule::interleaved ? pick({2, 3}) : 1;
    choices.zero = pick({0, 1, 2, 3});
    if (choices.dp % 2 == 0) choices.shard_group = pick({0, 2});
    choices.recompute = static_cast<Recompute>(pick({0, 1, 2}));
    choices.recompute_layers = choices.recompute == Recompute::full ? pick({0, 1, 2}) : 0;
    if (choices.recompute == Recompute::selective)
      choices.recompute_modules =
          pick({0, 1}) == 0 ? 0 : modules_from_names(trial % 2 == 0 ? "layernorm,mlp" : "mlp_act,core_attn");
    choices.sequence_parallel = choices.tp > 1 && pick({0, 1}) == 1;
    choices.overlap_grad_reduce = pick({0, 1}) == 1;
    choices.bucket_bytes = pick({0, 1000, 10000});
    choices.micro_batch = pick({1, 2});
    std::shuffle(choices.order.begin(), choices.order.end(), std::minstd_rand(static_cast<unsigned>(trial)));
    auto job = orrery::test::small_job(model, 0);
    job->training.global_batch =
        static_cast<std::int64_t>(choices.dp) * choices.micro_batch * pick({1, 2, 3, 4, 6});
    job->runtime.clip_gradients = pick({0, 1}) == 1;
    job->runtime.overlap_param_gather = pick({0, 1}) == 1;
    job->runtime.overlap_pipeline = pick({0, 1}) == 1;
    job->runtime.overlap_tensor = pick({0, 1}) == 1;
    job->runtime.overlap_tensor_backward = pick({0, 1}) == 1;
    const Plan plan{job, choices};
    try {
      check_plan(plan);
    } catch (const UserError&) {
      continue;
    }
    CAPTURE(trial);
    lower_and_verify(plan);
    ++lowered;
  }
  CHECK(lowered > 150);
}
