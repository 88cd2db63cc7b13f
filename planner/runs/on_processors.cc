#include "planner/runs/on_processors.h"

#include <memory>
#include <utility>

#include "planner/closed_form/figures.h"

namespace orrery::planner {
namespace {

// The executor's own profile, with what its lowering takes from the plan's.
RuntimeProfile executor_for(const RuntimeProfile& runtime) {
  RuntimeProfile own = catalog_runtime("orrery");
  own.clip_gradients = runtime.clip_gradients;
  own.selective_modules = runtime.selective_modules;
  own.bucket_bytes = runtime.bucket_bytes;
  return own;
}

Plan on(const Plan& plan, const Cluster& machine, DType precision) {
  auto job = std::make_shared<Job>(*plan.job);
  job->cluster = with_devices(machine, plan.choices.world());
  job->runtime = executor_for(plan.job->runtime);
  job->training.precision = precision;
  job->training.fused_attention = job->runtime.fused_attention;
  return {std::move(job), plan.choices};
}

// The share of a stage's ranks that keep the optimizer's states.
double updating_ranks(const Choices& choices) {
  const double replicas = choices.dp;
  if (choices.has_servers()) return choices.servers / replicas;
  return choices.sync == Sync::single_process ? 1 / replicas : 1;
}

}  // namespace

ProcessorMemory memory_on_processors(const Plan& plan, const Cluster& machine) {
  // Whatever is narrower stands in fp32 words; the optimizer has a copy of its own besides.
  const Plan words = on(plan, machine, DType::fp32);
  const bool copies = bytes_of(plan.parameter_type()) < bytes_of(DType::fp32);
  const Plan updated = copies ? on(plan, machine, DType::bf16) : words;
  ProcessorMemory sum;
  const Choices& c = plan.choices;
  const double ranks = static_cast<double>(c.world()) / c.pp;
  for (int stage = 0; stage < c.pp; ++stage) {
    const Memory memory = predict_memory_of_stage(words, stage);
    const double optimizer = predict_memory_of_stage(updated, stage).optimizer * updating_ranks(c);
    sum.state_bytes += ranks * (memory.weights + memory.gradients + optimizer);
    // Only asynchronous servers keep what is pushed to them.
    const double elsewhere = c.asynchronous() ? (1 - updating_ranks(c)) * memory.buffers : 0;
    sum.other_bytes +=
        ranks * (memory.total - memory.weights - memory.gradients - memory.optimizer - elsewhere);
  }
  return sum;
}

double step_seconds_on_processors(const Plan& plan, const Cluster& machine) {
  return estimate_step_seconds(on(plan, machine, DType::fp32));
}

}  // namespace orrery::planner
