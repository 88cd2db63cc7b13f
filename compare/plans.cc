#include "compare/plans.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "compare/library.h"
#include "compare/negotiation.h"
#include "planner/closed_form/figures.h"

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
    if (strategy.rendezvous == Rendezvous::bounded) choices.staleness = m.staleness;
  }
  choices.grad_compression = m.compression;
  choices.topk_ratio = m.topk_ratio;
  return choices;
}

// Of every cluster with several nodes: a node's devices, and a room's.
std::vector<int> groups_to_sum_in(const Cluster& cluster) {
  const int devices = cluster.devices();
  const int on_node = devices / cluster.nodes();
  std::vector<int> groups;
  for (const int group : {on_node, devices_of_room(cluster)})
    if (group > 1 && group < devices && devices % group == 0) groups.push_back(group);
  return groups;
}

int tensors_of(const Workload& workload) {
  std::size_t tensors = 0;
  for (const Operator& op : workload.operators) tensors += op.parameters.size();
  return static_cast<int>(tensors);
}

// Horovod's parameter manager (horovod/common/parameter_manager.cc, 2626dc8). What is tuned beside the
// hierarchy: buckets up to 64 MB and cycles from 1 to 100 ms.
constexpr std::array<double, 4> kTunedBuckets = {1 << 20, 8 << 20, 32 << 20, 64 << 20};
constexpr std::array<double, 4> kTunedCycles = {1e-3, 2.5e-3, 5e-3, 10e-3};
// A score is the median of 5 samples of 10 steps each. The first three are not looked at. Then follow rounds
// of 21 of bucket and cycle, one for each setting of four switches: hierarchical all-reduce, hierarchical
// all-gather, torus all-reduce, cache.
constexpr int kStepsOfScore = 5 * 10;
constexpr int kWarmUpScores = 3;
constexpr int kScoresOfRound = 21;
constexpr int kTuningRounds = 2 * 2 * 2 * 2;
// Each round begins with these; the others are drawn near where it was fast.
struct TriedFirst {
  double bucket_bytes, cycle_s;
};
constexpr std::array<TriedFirst, 4> kTriedFirst = {
    {{4 << 20, 5e-3}, {32 << 20, 50e-3}, {16 << 20, 25e-3}, {8 << 20, 10e-3}}};

}  // namespace

double gradient_bytes(const Plan& plan) {
  return static_cast<double>(plan.job->workload.parameters()) * bytes_of(plan.gradient_type());
}

double calls_of(const Plan& plan) {
  const Choices& choices = plan.choices;
  const double others = choices.servers - static_cast<double>(choices.servers) / choices.dp;
  const double buckets =
      plan.bucket_bytes() > 0 ? std::max(1.0, std::ceil(gradient_bytes(plan) / plan.bucket_bytes())) : 1;
  return 2 * buckets * others;
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

// Horovod's thread: its cycle lasts at least as long as its talk, and what became ready in one is joined. The
// last gradients wait for half a cycle in the mean, for the talk, and, divided before the sum, for a pass
// over the last buffer.
void PlanMaker::join_in_cycles(const Mechanics& m, Plan* plan, RuntimeProfile* runtime) {
  const auto busy = alone().busy_s.find("backward");
  const double backward_s = busy == alone().busy_s.end() ? 0 : busy->second;
  const double all_bytes = gradient_bytes(*plan);
  Talk talk = talk_of(plan->job->cluster);
  talk.requests_of_cycle =
      tensors_of(plan->job->workload) * (backward_s > 0 ? std::min(1.0, m.cycle_s / backward_s) : 1);
  const double talk_s = negotiation_s(talk, m.response_cache);
  const double cycle_s = std::max(m.cycle_s, talk_s);
  runtime->bucket_bytes = joined_bytes(all_bytes, backward_s, cycle_s, m.bucket_bytes);
  runtime->step_overhead_s += kMeanWait * cycle_s + talk_s;
  if (m.predivide != 1)
    runtime->step_overhead_s += 2 * std::min(runtime->bucket_bytes, all_bytes) /
                                (plan->job->cluster.profile_of(0).memory_bandwidth_bytes_per_s *
                                 plan->job->cluster.profile_of(0).memory_efficiency);
}

Plan PlanMaker::plan_as(const Strategy& strategy, const Mechanics& m, const Job& job, int group) {
  auto own = std::make_shared<Job>(job);
  RuntimeProfile& runtime = own->runtime;
  runtime.overlap_grad_reduce = m.overlap_reduce;
  runtime.overlap_param_gather = m.overlap_gather;
  Plan plan{own, strategy.rendezvous == Rendezvous::periodic ? Choices{} : choices_of(strategy, *own)};
  if (group > 0) plan.choices.shard_group = group;
  if (strategy.rendezvous == Rendezvous::periodic) {
    // One worker by itself: what it holds and computes.
    own->cluster.overrides.clear();
    own->cluster = with_devices(own->cluster, 1);
    own->training.global_batch = base_.samples_each();
  }
  plan.choices.recompute = base_.recompute.value_or(Recompute::none);
  plan.choices.recompute_modules = base_.recompute_modules;
  plan.choices.micro_batch = 1;
  runtime.bucket_bytes = m.bucket_parameters > 0
                             ? std::max(m.bucket_parameters, m.bucket_per_replica * plan.choices.dp) *
                                   bytes_of(plan.gradient_type())
                             : m.bucket_bytes;
  plan.choices.micro_batch = micro_batch_of(plan);
  if (m.cycle_s > 0 && plan.choices.dp > 1) join_in_cycles(m, &plan, &runtime);
  if (m.call_s > 0 && plan.choices.has_servers()) runtime.step_overhead_s += calls_of(plan) * m.call_s;
  check_plan(plan);
  return plan;
}

// By the closed form, which knows all of these: the first of the shortest. The rounds' first settings take as
// long as they take; what is drawn behind them is taken to be as short as what it settles on, so that tuning
// takes at least this. A round in two sums in groups first, where there are any.
Plan PlanMaker::tuned(const Strategy& strategy, const Job& job, const std::vector<int>& groups,
                      std::optional<Tuning>* tuning) {
  struct Tried {
    Plan plan;
    Tuning settings;
    double step_s = 0;
  };
  const auto tried = [&](double bucket_bytes, double cycle_s, int group) {
    Mechanics m = strategy.mechanics;
    m.bucket_bytes = bucket_bytes;
    m.cycle_s = cycle_s;
    Tried one{plan_as(strategy, m, job, group), {bucket_bytes, cycle_s, group, 0, 0}, 0};
    one.step_s = planner::estimate_step_seconds(one.plan);
    return one;
  };
  Tried best = tried(strategy.mechanics.bucket_bytes, strategy.mechanics.cycle_s, 0);
  if (best.plan.choices.dp == 1) return best.plan;
  const auto offer = [&](Tried one) {
    if (one.step_s < best.step_s) best = std::move(one);
  };
  std::vector<int> all_groups = {0};
  all_groups.insert(all_groups.end(), groups.begin(), groups.end());
  for (const double bucket_bytes : kTunedBuckets)
    for (const double cycle_s : kTunedCycles)
      for (const int group : all_groups) offer(tried(bucket_bytes, cycle_s, group));
  double first_s = 0, warm_s = 0;
  for (const TriedFirst& first : kTriedFirst)
    for (const int group : {0, groups.empty() ? 0 : groups.front()}) {
      Tried one = tried(first.bucket_bytes, first.cycle_s, group);
      first_s += one.step_s / 2;
      if (&first == &kTriedFirst.front() && group == 0) warm_s = one.step_s;
      offer(std::move(one));
    }
  Tuning settled = best.settings;
  settled.steps = kStepsOfScore * (kWarmUpScores + kTuningRounds * kScoresOfRound);
  settled.extra_s = kStepsOfScore * (kWarmUpScores * (warm_s - best.step_s) +
                                     kTuningRounds * (first_s - kTriedFirst.size() * best.step_s));
  if (tuning != nullptr) *tuning = settled;
  return best.plan;
}

Plan PlanMaker::plan_of(const Strategy& strategy, std::shared_ptr<const Job> job,
                        std::optional<Tuning>* tuning) {
  const Mechanics& m = strategy.mechanics;
  if (m.one_node && job->cluster.nodes() > 1)
    throw UserError(fmt::format("one process on {} nodes", job->cluster.nodes()), "the devices of one node");
  if (strategy.rendezvous == Rendezvous::first && m.backups >= job->cluster.devices() &&
      job->cluster.devices() > 1)
    throw UserError(fmt::format("`backups` {} of {} workers", m.backups, job->cluster.devices()),
                    "fewer than there are workers");
  check_library(m.library, job->cluster);
  if (m.library != Library::own && m.library != Library::nccl && (m.in_groups || m.autotune))
    throw UserError(fmt::format("`library` {} in groups", name_of(m.library)),
                    "expected nccl, or one all-reduce over all devices");
  const std::vector<int> groups = groups_to_sum_in(job->cluster);
  if (m.autotune) return tuned(strategy, *job, groups, tuning);
  if (!m.in_groups || groups.empty()) return plan_as(strategy, m, *job, 0);
  if (groups.size() == 1) return plan_as(strategy, m, *job, groups.front());
  // By the closed form: the first of the shortest.
  std::optional<Plan> best;
  double best_s = 0;
  for (const int group : groups) {
    Plan plan = plan_as(strategy, m, *job, group);
    const double step_s = planner::estimate_step_seconds(plan);
    if (best && step_s >= best_s) continue;
    best = std::move(plan);
    best_s = step_s;
  }
  return *best;
}

const sim::Simulation& PlanMaker::alone() {
  if (!alone_) {
    const auto job = job_on(base_, 1);
    job->cluster.overrides.clear();
    Plan plan{job, {}};
    plan.choices.recompute = base_.recompute.value_or(Recompute::none);
    plan.choices.recompute_modules = base_.recompute_modules;
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
