#include "planner/evaluation/validation.h"

#include <catch2/catch.hpp>

#include "tests/support/jobs.h"

namespace orrery::planner {
namespace {

Program two_instructions(int rank) {
  Program program;
  program.rank = rank;
  Instruction forward;
  forward.compute = ComputeKind::forward;
  Instruction backward;
  backward.compute = ComputeKind::backward;
  program.instructions = {forward, backward};
  return program;
}

TEST_CASE("timelines are joined by instruction, without the step that warms up") {
  const std::vector<Program> programs = {two_instructions(0)};
  const Timeline predicted = {{{0, 0, 0, 0.0, 1.0}, {0, 0, 1, 1.0, 3.0}}};
  const Timeline measured = {{{0, 0, 0, 0.0, 9.0},
                              {0, 0, 1, 9.0, 19.0},
                              {0, 1, 0, 20.0, 21.0},
                              {0, 1, 1, 21.0, 25.0},
                              {1, 1, 0, 0.0, 50.0}}};  // of a rank that another stands for
  const auto kinds = join({}, programs, predicted, measured);
  REQUIRE(kinds.size() == 2);
  CHECK(kinds[0].kind == "backward");  // the larger difference first
  CHECK(kinds[0].predicted_s == Approx(2));
  CHECK(kinds[0].measured_s == Approx(4));
  CHECK(kinds[1].predicted_s == Approx(1));
  CHECK(kinds[1].measured_s == Approx(1));
}

TEST_CASE(
    "what the mean rank waits for fuller ones' experts is expert communication, as a run's clock has it") {
  auto job = test::make_job("mixtral-8x7b", "dgx-h100", 2, 2, 64);
  job->runtime.expert_spread = 0.4;
  Choices c;
  c.dp = c.ep = 2;
  const Plan plan{job, c};
  const double fullest = fullest_share(plan).value();
  CHECK(fullest > 1.2);
  Program program;
  Instruction experts;
  const auto& operators = job->workload.operators;
  while (operators[static_cast<std::size_t>(experts.op_begin)].kind != OperatorKind::expert_linear)
    ++experts.op_begin;
  experts.op_end = experts.op_begin + 1;
  Instruction attention;
  attention.op_begin = 1;
  attention.op_end = 2;
  program.instructions = {experts, attention};
  const Timeline timeline = {{{0, 0, 0, 0.0, fullest}, {0, 0, 1, fullest, fullest + 3}}};
  for (const KindComparison& kind : join(plan, {program}, timeline, timeline))
    CHECK(kind.predicted_s == Approx(kind.kind == "expert_comm" ? fullest - 1 : 4));
  c.ep = 1;
  CHECK_FALSE(fullest_share({job, c}));
  CHECK(join({job, c}, {program}, timeline, timeline).size() == 1);
}

TEST_CASE("the error in words") {
  Validation validation;
  validation.predicted_step_time_s = 1.1;
  validation.measured_step_time_s = 1.0;
  validation.by_kind = {{"forward", 0.6, 0.5}, {"input", 0.1, 0}};
  CHECK(validation.relative_error() == Approx(0.1));
  CHECK_THAT(explain(validation), Catch::Contains("10.0% too long") && Catch::Contains("forward"));
}

TEST_CASE("a machine that has become slower is told apart from a wrong prediction") {
  Validation validation;
  validation.predicted_step_time_s = 0.9;
  validation.measured_step_time_s = 1.2;
  validation.pace = MachinePace{.before = 0.8, .after = 0.7, .least = 0.7, .most = 0.8, .step_time_s = 0.9};
  CHECK(validation.relative_error() == Approx(-0.25));
  CHECK(validation.relative_error_at_pace() == Approx(0).margin(1e-12));
  CHECK_THAT(explain(validation), Catch::Contains("70% to 80% of its calibrated pace"));
}

}  // namespace
}  // namespace orrery::planner
