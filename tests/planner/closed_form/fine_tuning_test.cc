// Adapters and frozen weights: memory by hand, and closed form, bound and simulation of the same plans.
#include <algorithm>
#include <catch2/catch.hpp>

#include "base/random.h"
#include "planner/closed_form/estimator.h"
#include "planner/closed_form/figures.h"
#include "planner/evaluation/evaluation.h"
#include "planner/space/space.h"
#include "program/lower/lowering.h"
#include "program/program.h"
#include "sim/simulator.h"
#include "tests/support/jobs.h"

namespace orrery::planner {
namespace {

FineTuning adapters(int rank, BaseType base = BaseType::none, int frozen_layers = 0) {
  FineTuning tuning;
  tuning.rank = rank;
  tuning.base = base;
  tuning.frozen_layers = frozen_layers;
  return tuning;
}

std::shared_ptr<Job> job_of(const char* model, const char* cluster, int devices, std::int64_t batch,
                            int seq_len, const FineTuning& tuning) {
  auto job = test::make_job(model, cluster, devices, batch, seq_len);
  if (tuning.any()) fine_tune(job->workload, tuning);
  return job;
}

double bytes_of_kind(const Program& program, CollectiveKind kind) {
  double bytes = 0;
  for (const Instruction& i : program.instructions)
    if (i.op == Op::collective && i.stream == Stream::data && i.collective == kind && i.bytes > 4)
      bytes += i.bytes;
  return bytes;
}

double flops_of(const Program& program, bool forward) {
  double flops = 0;
  for (const Instruction& i : program.instructions)
    if (i.op == Op::compute && i.compute != ComputeKind::optimizer &&
        (i.compute == ComputeKind::forward) == forward)
      flops += i.flops;
  return flops;
}

TEST_CASE("memory: a base in its own precision, states of the adapters alone") {
  const auto job = job_of("llama3-8b", "pcie-4090", 1, 1, 1024, adapters(16));
  const Memory lora = predict_memory({job, {}});
  const double base = 8'030'261'248, own = 41'943'040;
  CHECK(lora.weights == Approx(2 * (base + own)));
  CHECK(lora.optimizer == Approx(12 * own));
  CHECK(lora.gradients <= 8 * own);
  // 4.127 bits of every projection; embedding, head and norms stay in 16.
  const Memory qlora =
      predict_memory({job_of("llama3-8b", "pcie-4090", 1, 1, 1024, adapters(16, BaseType::nf4_dq)), {}});
  const double projections = 32.0 * (4096 * (4096 + 1024 + 1024 + 4096) + 3 * 4096.0 * 14336);
  CHECK(qlora.weights == Approx(2 * (base + own - projections) + 4.126953125 / 8 * projections));
  // The largest projection is turned back as a whole.
  CHECK(qlora.buffers - lora.buffers == Approx(2 * 4096.0 * 14336));
  CHECK(qlora.activations == Approx(lora.activations));
}

TEST_CASE("memory: frozen products keep no input, and layers before all training keep nothing") {
  const Memory full = predict_memory({job_of("llama3-8b", "dgx-a100", 1, 1, 2048, {}), {}});
  FineTuning on_values = adapters(8);
  on_values.targets = kValue;
  const Memory some = predict_memory({job_of("llama3-8b", "dgx-a100", 1, 1, 2048, on_values), {}});
  const Memory late =
      predict_memory({job_of("llama3-8b", "dgx-a100", 1, 1, 2048, adapters(8, BaseType::none, 16)), {}});
  CHECK(some.activations < 0.85 * full.activations);
  CHECK(late.activations < 0.6 * full.activations);
}

TEST_CASE("a step with adapters computes no gradients of frozen weights and sends adapters' alone") {
  Plan full{job_of("llama3-8b", "dgx-a100", 8, 8, 2048, {}), {}};
  full.choices.dp = 8;
  Plan lora{job_of("llama3-8b", "dgx-a100", 8, 8, 2048, adapters(16)), full.choices};
  const Program everything = lower(full, 0), adapted = lower(lora, 0);
  CHECK(flops_of(adapted, false) / flops_of(everything, false) == Approx(0.53).epsilon(0.03));
  CHECK(bytes_of_kind(adapted, CollectiveKind::all_reduce) ==
        Approx(bytes_of_kind(everything, CollectiveKind::all_reduce) * 41'943'040 / 8'030'261'248));
  CHECK(flops_of(adapted, true) + flops_of(adapted, false) == Approx(model_flops(lora) / 8).epsilon(1e-6));
  CHECK(sim::simulate(lora).step_time_s < 0.75 * sim::simulate(full).step_time_s);
}

TEST_CASE("ZeRO-3 gathers the frozen base as it is stored, twice a step, and scatters adapters") {
  const auto gathered = [](const FineTuning& tuning) {
    Plan plan{job_of("llama3-8b", "dgx-a100", 8, 8, 2048, tuning), {}};
    plan.choices.dp = 8;
    plan.choices.zero = 3;
    const Program program = lower(plan, 0);
    double elements = 0;
    for (const Bucket& bucket : program.buckets)
      if (!bucket.frozen) elements += static_cast<double>(bucket.elements);
    CHECK(elements == Approx(41'943'040).epsilon(1e-6));
    CHECK(bytes_of_kind(program, CollectiveKind::reduce_scatter) ==
          Approx(elements * bytes_of(plan.gradient_type())));
    return bytes_of_kind(program, CollectiveKind::all_gather);
  };
  // Embedding and the last layer, head and all, once.
  const double plain = gathered(adapters(16));
  CHECK(plain < 2 * 2 * 8'072'204'288.0);
  CHECK(plain > 1.8 * 2 * 8'072'204'288.0);
  CHECK(gathered(adapters(16, BaseType::nf4)) < 0.45 * plain);
}

TEST_CASE("dequantisation takes time, and less of a step the more tokens there are") {
  const auto slower = [](std::int64_t micro_batch) {
    Choices choices;
    choices.micro_batch = static_cast<int>(micro_batch);
    const auto step = [&](BaseType base) {
      return estimate_step_seconds(
          {job_of("llama2-7b", "dgx-a100", 1, micro_batch, 512, adapters(8, base)), choices});
    };
    return step(BaseType::nf4_dq) / step(BaseType::none);
  };
  CHECK(slower(1) > 1.2);
  CHECK(slower(8) > 1.01);
  CHECK(slower(8) < 1.25);
  CHECK(slower(8) - 1 < 0.3 * (slower(1) - 1));
}

TEST_CASE("with adapters and frozen layers the bound is below the simulation and the estimate near it") {
  const std::vector<std::shared_ptr<Job>> jobs = {
      job_of("llama3-8b", "dgx-h100", 16, 32, 2048, adapters(16)),
      job_of("llama3-8b", "dgx-a100", 8, 16, 1024, adapters(8, BaseType::nf4, 20)),
      job_of("gpt2-xl", "dgx-a100", 8, 32, 512, adapters(0, BaseType::none, 30)),
      job_of("mixtral-8x7b", "dgx-h100", 16, 16, 2048, adapters(16, BaseType::nf4_dq)),
  };
  std::vector<Plan> plans;
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    const std::vector<Choices> space = enumerate(jobs[j], {});
    const CounterRandom random(7, j);
    for (int i = 0; i < 30; ++i) plans.push_back({jobs[j], space[random.bits(i) % space.size()]});
  }
  sim::SimulationOptions options;
  options.keep_timeline = false;
  const auto simulations = sim::simulate_all(plans, options, 2);
  std::vector<double> errors;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const StepTimes times = Estimator(plans[i].job).times(plans[i].choices);
    INFO(plans[i].job->workload.name << ": " << describe(plans[i]) << "; bound " << times.lower_bound_s
                                     << " estimate " << times.estimate_s << " simulated "
                                     << simulations[i].step_time_s);
    CHECK(times.lower_bound_s <= simulations[i].step_time_s * (1 + 1e-9));
    CHECK(times.lower_bound_s <= times.estimate_s * (1 + 1e-9));
    errors.push_back(std::abs(times.estimate_s / simulations[i].step_time_s - 1));
  }
  std::sort(errors.begin(), errors.end());
  INFO("median " << errors[errors.size() / 2] << ", 90% " << errors[errors.size() * 9 / 10]);
  CHECK(errors[errors.size() / 2] < 0.08);
  CHECK(errors[errors.size() * 9 / 10] < 0.5);
}

}  // namespace
}  // namespace orrery::planner
