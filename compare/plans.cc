#include "compare/plans.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace orrery::comparison {
namespace {

// A thread that looks once in a cycle finds the last gradients half a cycle late in the mean.
constexpr double kMeanWait = 0.5;

Choices choices_of(const Strategy& strategy, const Job& job) {
  const Mechanics& m = strategy.mechanics;
  Choices choices;
  choices.dp = job.cluster.devices();
  choices.overlap_grad_reduce = m.overlap_reduce;
  if (choices.dp == 1) return choices;
  choices.zero = m.zero;
  if (m.shard_in_node && job.cluster.nodes() > 1) {
    const int each = job.cluster.devices() / job.cluster.nodes();
    if (each > 1) choices.shard_group = each;
  }
  choices.sync = m.sync;
  if (choices.has_servers()) {
    choices.servers = m.servers > 0 ? m.servers : choices.dp;
    if (strategy.meeting == Meeting::bounded) choices.staleness = m.staleness;
  }
  choices.grad_compression = m.compression;
  choices.topk_ratio = m.topk_ratio;
  return choices;
}

}  // namespace

double gradient_bytes(const Plan& plan) {
  return static_cast<double>(plan.job->workload.parameters()) * bytes_of(plan.gradient_type());
}

std::shared_ptr<Job> job_on(const Base& base, int devices) {
  auto job = std::make_shared<Job>(*base.job);
  if (devices != job->cluster.devices()) job->cluster = with_devices(std::move(job->cluster), devices);
  job->training.global_batch = base.samples_each() * devices;
  return job;
}

int PlanMaker::micro_batch_of(const Plan& plan) const {
  if (base_.micro_batch) return *base_.micro_batch;
  const std::int64_t each = base_.samples_each();
  Plan tried = plan;
  for (std::int64_t parts = 1; parts <= each; ++parts) {
    if (each % parts != 0) continue;
    tried.choices.micro_batch = static_cast<int>(each / parts);
    if (planner::predict_memory(tried).fits()) return tried.choices.micro_batch;
  }
  return 1;
}

Plan PlanMaker::plan_of(const Strategy& strategy, std::shared_ptr<const Job> job) {
  const Mechanics& m = strategy.mechanics;
  if (m.one_node && job->cluster.nodes() > 1)
    throw UserError(fmt::format("{} nodes", job->cluster.nodes()), "the devices of one node");
  if (strategy.meeting == Meeting::first && m.backups >= job->cluster.devices() && job->cluster.devices() > 1)
    throw UserError(fmt::format("`backups` {} of {} workers", m.backups, job->cluster.devices()),
                    "fewer than there are workers");
  auto own = std::make_shared<Job>(*job);
  RuntimeProfile& runtime = own->runtime;
  runtime.overlap_grad_reduce = m.overlap_reduce;
  runtime.overlap_param_gather = m.overlap_gather;
  Plan plan{own, strategy.meeting == Meeting::periodic ? Choices{} : choices_of(strategy, *own)};
  if (strategy.meeting == Meeting::periodic) {
    // One worker by itself: what it holds and computes.
    own->cluster.overrides.clear();
    own->cluster = with_devices(own->cluster, 1);
    own->training.global_batch = base_.samples_each();
  }
  plan.choices.recompute = base_.recompute.value_or(Recompute::none);
  plan.choices.micro_batch = 1;
  runtime.bucket_bytes = m.bucket_parameters > 0
                             ? std::max(m.bucket_parameters, m.bucket_per_replica * plan.choices.dp) *
                                   bytes_of(plan.gradient_type())
                             : m.bucket_bytes;
  plan.choices.micro_batch = micro_batch_of(plan);
  if (m.cycle_s > 0 && plan.choices.dp > 1) {
    const auto backward = alone().busy_s.find("backward");
    runtime.bucket_bytes =
        joined_bytes(gradient_bytes(plan), backward == alone().busy_s.end() ? 0 : backward->second, m.cycle_s,
                     m.bucket_bytes);
    runtime.step_overhead_s += kMeanWait * m.cycle_s;
  }
  check_plan(plan);
  return plan;
}

const sim::Simulation& PlanMaker::alone() {
  if (!alone_) {
    const auto job = job_on(base_, 1);
    job->cluster.overrides.clear();
    Plan plan{job, {}};
    plan.choices.recompute = base_.recompute.value_or(Recompute::none);
    plan.choices.micro_batch = micro_batch_of(plan);
    check_plan(plan);
    alone_ = sim::simulate(plan);
  }
  return *alone_;
}

double PlanMaker::samples_per_s_alone() {
  return static_cast<double>(base_.samples_each()) / alone().step_time_s;
}

}  // namespace orrery::comparison
