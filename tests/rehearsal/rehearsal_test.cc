// A form of parallelism that the product does not know is planned like any other. It is executed in
// tests/exec/mpi/rehearsal.cc.
#include <catch2/catch.hpp>

#include "base/error.h"
#include "planner/closed_form/estimator.h"
#include "planner/closed_form/figures.h"
#include "program/forms.h"
#include "program/lower/lowering.h"
#include "proto/plan.pb.h"
#include "row_form.h"
#include "sim/scenario/folding.h"
#include "sim/simulator.h"
#include "tests/support/jobs.h"

namespace orrery {
namespace {

using test::kRowsGroup;

constexpr int kDevices = 16;                                                 // two nodes
constexpr int kLayers = 32, kSeqLen = 2048, kHidden = 4096, kWidth = 14336;  // Llama-3 8B's

Plan llama(int tp, bool rows) {
  static const bool once = [] {
    test::register_rows();
    return true;
  }();
  static_cast<void>(once);
  const auto job = test::make_job("llama3-8b", "dgx-h100", kDevices, 2 * kDevices, kSeqLen);
  test::hold_mlps_whole(job->workload);
  job->runtime.overlap_tensor = false;
  Plan plan{job, {}};
  plan.choices.tp = tp;
  plan.choices.dp = kDevices / tp;
  plan.choices.zero = 1;
  if (rows) plan.choices.degrees[test::kRowsName] = tp;
  check_plan(plan);
  return plan;
}

int gathers_of(const Program& program, TensorKind kind) {
  int count = 0;
  for (const Instruction& instruction : program.instructions)
    if (instruction.form == test::kRows && instruction.writes.front().kind == kind) ++count;
  return count;
}

TEST_CASE("a form that is refused leaves nothing behind") {
  llama(2, true);
  const std::size_t forms = forms_of_parallelism().size(), groups = group_rules().size();
  GroupRule free, taken;
  free.kind = static_cast<GroupKind>(static_cast<int>(kRowsGroup) + 1);
  taken.kind = kRowsGroup;
  FormOfParallelism form;
  form.id = static_cast<Parallelism>(static_cast<int>(test::kRows) + 1);
  form.name = "other rows";
  form.groups = {free, taken};
  CHECK_THROWS_AS(register_form(form), InternalError);
  form.id = test::kRows;
  form.groups = {free};
  CHECK_THROWS_AS(register_form(form), InternalError);
  CHECK(forms_of_parallelism().size() == forms);
  CHECK(group_rules().size() == groups);
}

TEST_CASE("an added form has its group, its instructions and its partial gradients in the Program") {
  const Plan plan = llama(2, true);
  CHECK(group_of(kRowsGroup, plan, 5).ranks == std::vector<std::int32_t>{4, 5});
  CHECK(name_of(kRowsGroup) == "rows");
  std::vector<Program> programs;
  for (int rank = 0; rank < plan.choices.world(); ++rank) programs.push_back(lower(plan, rank));
  verify_programs(programs);
  const int micro_batches = static_cast<int>(plan.micro_batches());
  CHECK(gathers_of(programs[3], TensorKind::activation) == micro_batches * kLayers);
  CHECK(gathers_of(programs[3], TensorKind::activation_gradient) == micro_batches * kLayers);
  double partial = 0;
  for (const Instruction& instruction : programs[3].instructions) {
    if (instruction.form == test::kRows) {
      CHECK(instruction.bytes == 2.0 * kSeqLen * kHidden);
      CHECK(kind_of(instruction) == "rows_comm");
    }
    if (!instruction.writes.empty() && instruction.op == Op::collective &&
        instruction.reads.front().kind == TensorKind::replicated_gradient)
      partial = instruction.bytes;
  }
  // The rank's part of all MLPs' gradients: ZeRO has scattered them over 8 replicas before.
  const double mlps = 3.0 * kLayers * kHidden * kWidth;
  CHECK(partial == Approx(mlps * bytes_of(plan.gradient_type()) / 8).epsilon(0.1));
  CHECK(partial > 0);
}

TEST_CASE("an added form halves what its operators work on and keep") {
  const Plan whole = llama(2, false);
  const Plan rows = llama(2, true);
  const auto flops_of = [](const Plan& plan) {
    double flops = 0;
    for (const Instruction& instruction : lower(plan, 0).instructions) flops += instruction.flops;
    return flops;
  };
  // Forward and twice that going back: 2 x rows x 3 matrices x hidden x width, of which half is saved.
  const double saved =
      3 * 2.0 * kSeqLen * 3 * kHidden * kWidth * kLayers * static_cast<double>(rows.micro_batches()) / 2;
  CHECK(flops_of(whole) - flops_of(rows) == Approx(saved).epsilon(1e-9));

  // What an MLP keeps of a row in bf16: its input, gate and up, and their product.
  const planner::Memory before = planner::predict_memory(whole);
  const planner::Memory after = planner::predict_memory(rows);
  const double kept = 2.0 * kSeqLen * kLayers * (kHidden + 2 * kWidth + kWidth);
  CHECK((before.activations - before.transient) - (after.activations - after.transient) ==
        Approx(kept / 2).epsilon(1e-9));
  CHECK(after.weights == before.weights);
  CHECK(after.optimizer == before.optimizer);
}

TEST_CASE("an added form is folded, simulated, estimated and bounded") {
  double step_s[2] = {};
  for (const bool with_rows : {false, true}) {
    const Plan plan = llama(2, with_rows);
    const sim::Folding folding = sim::fold_ranks(plan);
    CHECK(folding.classes.size() < static_cast<std::size_t>(kDevices));
    sim::SimulationOptions options;
    const double folded_s = sim::simulate(plan, options).step_time_s;
    options.fold = false;
    CHECK(folded_s == Approx(sim::simulate(plan, options).step_time_s).epsilon(1e-3));
    planner::Estimator estimator(plan.job);
    const planner::StepTimes times = estimator.times(plan.choices);
    CHECK(times.estimate_s == Approx(folded_s).epsilon(0.02));
    CHECK(times.lower_bound_s <= folded_s);
    CHECK(times.lower_bound_s > 0.7 * folded_s);
    step_s[with_rows ? 1 : 0] = folded_s;
  }
  // The estimator of one job tells plans with and without it apart, and half an MLP is much of a layer.
  CHECK(step_s[1] < 0.87 * step_s[0]);
  const Plan rows = llama(2, true);
  Choices without = rows.choices;
  without.degrees.clear();
  planner::Estimator estimator(rows.job);
  CHECK(estimator.times(without).estimate_s == Approx(step_s[0]).epsilon(0.02));
  CHECK(estimator.times(rows.choices).estimate_s == Approx(step_s[1]).epsilon(0.02));
}

TEST_CASE("an added form's degree is checked, and is in the plan's file") {
  Plan plan = llama(2, true);
  proto::Plan message;
  to_proto(plan, &message);
  CHECK(plan_from_proto(message, "", "").choices == plan.choices);
  plan.choices.degrees[test::kRowsName] = 4;
  CHECK_THROWS_AS(check_plan(plan), UserError);
  plan.choices.degrees = {{"columns", 2}};
  CHECK_THROWS_WITH(check_plan(plan), Catch::Contains("columns"));
}

}  // namespace
}  // namespace orrery
