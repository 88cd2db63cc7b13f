#include "orrery/goodput.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/units.h"
#include "planner/runs/elastic.h"
#include "planner/runs/training_length.h"
#include "planner/search/search.h"
#include "sim/simulator.h"
#include "topologies/power.h"

namespace orrery {
namespace {

constexpr std::int64_t kMostSteps = 1'000'000'000'000;

std::int64_t steps_of(const TrainingLength& length, const Training& training) {
  double steps = 0;
  if (length.steps) {
    steps = *length.steps;
    if (steps != std::floor(steps))
      throw UserError(fmt::format("`steps` {}", steps), "expected a whole number of steps");
  } else {
    if (length.tokens && training.seq_len == 0)
      throw UserError("`tokens`: the plan's samples are not counted in tokens",
                      "expected `samples` or `steps`");
    const double amount = length.tokens ? *length.tokens : *length.samples;
    steps = std::ceil(planner::steps_for(training, amount, length.tokens.has_value()));
  }
  if (!(steps >= 1 && steps <= static_cast<double>(kMostSteps)))
    throw UserError(fmt::format("{:.3g} steps", steps), fmt::format("expected 1 to {}", kMostSteps));
  return static_cast<std::int64_t>(steps);
}

double failures_per_s(const GoodputRequest& request, const Cluster& cluster) {
  double per_hour = cluster.devices() / request.mtbf_device_hours;
  if (request.mtbf_node_hours) per_hour += cluster.nodes() / *request.mtbf_node_hours;
  return per_hour / kSecondsPerHour;
}

double storage_s(const GoodputRequest& request, const Cluster& cluster, double bytes, double by_nodes_s,
                 std::string_view instead) {
  if (request.checkpoint_bandwidth_bytes_per_s) return bytes / *request.checkpoint_bandwidth_bytes_per_s;
  if (by_nodes_s <= 0)
    throw UserError(fmt::format("{} states no storage of some node", cluster.name),
                    fmt::format("expected `checkpoint_bandwidth` or `{}`", instead));
  return by_nodes_s;
}

double snapshot_s(const GoodputRequest& request, const Cluster& cluster,
                  const planner::CheckpointCost& cost) {
  if (request.snapshot_s) return *request.snapshot_s;
  if (cost.device_bytes_per_s <= 0)
    throw UserError(fmt::format("`checkpoint_async`: {} does not state how fast a device copies to its host",
                                cluster.name),
                    "expected `snapshot_s`");
  return cost.device_bytes / cost.device_bytes_per_s;
}

planner::CheckpointTimes checkpoint_times(const GoodputRequest& request, const Cluster& cluster,
                                          const planner::CheckpointCost& cost) {
  planner::CheckpointTimes times;
  const double write_s = request.checkpoint_s
                             ? *request.checkpoint_s
                             : storage_s(request, cluster, cost.bytes, cost.write_s, "checkpoint_s");
  const bool outright = request.checkpoint_s && !request.checkpoint_bandwidth_bytes_per_s;
  times.read_s = request.read_s ? *request.read_s
                 : outright     ? write_s
                                : storage_s(request, cluster, cost.bytes, cost.read_s, "read_s");
  times.stall_s = request.checkpoint_async ? snapshot_s(request, cluster, cost) : write_s;
  times.write_s = request.checkpoint_async ? write_s : 0;
  return times;
}

void check(const GoodputRequest& request) {
  const TrainingLength& length = request.length;
  const int lengths = length.tokens.has_value() + length.samples.has_value() + length.steps.has_value();
  if (lengths != 1)
    throw UserError(lengths == 0 ? "the length of the run is not said" : "the run has several lengths",
                    "expected one of `tokens`, `samples` and `steps`");
  if (!(request.mtbf_device_hours > 0))
    throw UserError("how often devices fail is not said", "expected `mtbf_device_hours` above 0");
  if (request.runs < 1) throw UserError(fmt::format("`runs` {}", request.runs), "expected at least 1");
  if (!request.repair_hours && (request.spares > 0 || request.elastic))
    throw UserError(
        request.spares > 0 ? "`spares` without `repair_hours`" : "`elastic` without `repair_hours`",
        "expected how long a failed node is away; without it all are back at once");
  if (request.snapshot_s && !request.checkpoint_async)
    throw UserError("`snapshot_s` without `checkpoint_async`",
                    "expected both: without it training waits until a checkpoint is written");
}

// The plan, then those that an elastic run goes on with.
std::vector<planner::RunningPlan> running_plans(const GoodputRequest& request,
                                                const planner::TrainingRun& run) {
  const Plan& plan = request.plan;
  const int nodes = plan.job->cluster.nodes();
  sim::SimulationOptions simulation;
  simulation.keep_timeline = false;
  const sim::Simulation step = sim::simulate(plan, simulation);
  std::vector<planner::RunningPlan> plans = {{nodes, step.step_time_s, step.energy_j}};
  if (!request.elastic) return plans;
  const int lost = planner::nodes_lost_at_most(run.failures_per_s, run.repair_s);
  for (const planner::RunningPlan& smaller :
       planner::smaller_plans(plan, nodes - std::max(1, lost), request.jobs))
    plans.push_back(smaller);
  return plans;
}

planner::GoodputQuestion question_of(const GoodputRequest& request, const planner::CheckpointCost& cost) {
  const Cluster& cluster = request.plan.job->cluster;
  planner::GoodputQuestion question;
  planner::TrainingRun& run = question.run;
  run.steps = steps_of(request.length, request.plan.job->training);
  run.failures_per_s = failures_per_s(request, cluster);
  run.checkpoint = checkpoint_times(request, cluster, cost);
  run.detect_s = request.detect_s;
  run.restart_s = request.restart_s;
  run.spares = request.spares;
  run.repair_s = request.repair_hours.value_or(0) * kSecondsPerHour;
  run.plans = running_plans(request, run);
  question.every = request.checkpoint_every.value_or(0);
  question.checkpoints_beside = request.checkpoint_async;
  question.runs = request.runs;
  question.seed = request.seed;
  question.usd_per_s = planner::usd_per_s(cluster);
  question.idle_power_w = idle_power_w(cluster);
  question.step_draws = planner::step_draws(request.plan);
  return question;
}

}  // namespace

Goodput goodput(const GoodputRequest& request) {
  check(request);
  Goodput result;
  result.job = request.plan.job;
  result.checkpoint = planner::checkpoint_cost(request.plan);
  result.question = question_of(request, result.checkpoint);
  result.answer = planner::answer(result.question);
  return result;
}

}  // namespace orrery
