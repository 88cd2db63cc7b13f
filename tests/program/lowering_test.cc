#include "program/lowering.h"

#include <algorithm>
#include <catch2/catch.hpp>

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
    FAIL(error.what() << "\n" << dump(programs.front()));
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
