#include "compare/recut.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <numeric>

#include "base/enum_names.h"
#include "base/error.h"
#include "base/parallel.h"
#include "compare/balance.h"
#include "planner/closed_form/graph_cuts.h"
#include "planner/closed_form/load_balancing.h"
#include "planner/space/balance.h"
#include "planner/tables/geometry.h"
#include "sim/simulator.h"

namespace orrery::comparison {
namespace {

constexpr std::array<std::string_view, 3> kCuttingNames = {"even", "by-speed", "dynamic"};

// The stage of every layer.
std::vector<std::size_t> stages_of(const std::vector<int>& cut) {
  std::vector<std::size_t> stages;
  for (std::size_t s = 0; s < cut.size(); ++s)
    stages.insert(stages.end(), static_cast<std::size_t>(cut[s]), s);
  return stages;
}

// The largest divisor up to the half: so that there are at least twice as many micro-batches as stages.
int half_of(std::int64_t samples) {
  std::int64_t part = std::max<std::int64_t>(1, samples / 2);
  while (samples % part != 0) --part;
  return static_cast<int>(part);
}

// The cut whose slowest stage is fastest; of those the one with the least squares of all stages' times.
std::vector<int> balanced(const Pipeline& pipeline, const std::vector<double>& slowness) {
  const std::size_t layers = pipeline.layer_s.size();
  std::vector<std::vector<double>> sums;
  for (const double factor : slowness) {
    std::vector<double>& of_stage = sums.emplace_back(1, 0.0);
    for (const double layer : pipeline.layer_s) of_stage.push_back(of_stage.back() + factor * layer);
  }
  const std::vector<int> fastest = planner::cut_by_stage_times(sums);
  double most_s = 0;
  std::size_t at = 0;
  for (std::size_t s = 0; s < fastest.size(); ++s) {
    const std::size_t end = at + static_cast<std::size_t>(fastest[s]);
    most_s = std::max(most_s, sums[s][end] - sums[s][at]);
    at = end;
  }
  most_s *= 1 + 1e-12;
  constexpr double kNever = std::numeric_limits<double>::infinity();
  // Of stages up to this one, over layers up to `end`: their squares, and where this one begins.
  std::vector<double> squares(layers + 1, kNever);
  squares[0] = 0;
  std::vector<std::vector<std::size_t>> begins;
  for (const std::vector<double>& sum : sums) {
    std::vector<double> next(layers + 1, kNever);
    std::vector<std::size_t>& begin = begins.emplace_back(layers + 1, 0);
    for (std::size_t end = 1; end <= layers; ++end)
      for (std::size_t first = 0; first < end; ++first) {
        const double busy_s = sum[end] - sum[first];
        if (busy_s > most_s || squares[first] + busy_s * busy_s >= next[end]) continue;
        next[end] = squares[first] + busy_s * busy_s;
        begin[end] = first;
      }
    squares = std::move(next);
  }
  std::vector<int> cut(sums.size());
  std::size_t end = layers;
  for (std::size_t s = sums.size(); s-- > 0;) {
    cut[s] = static_cast<int>(end - begins[s][end]);
    end = begins[s][end];
  }
  return cut;
}

}  // namespace

std::string_view name_of(Cutting cutting) {
  return name_in(kCuttingNames, cutting);
}

int moved_layers(const std::vector<int>& before, const std::vector<int>& after) {
  const std::vector<std::size_t> was = stages_of(before);
  const std::vector<std::size_t> is = stages_of(after);
  int moved = 0;
  for (std::size_t layer = 0; layer < std::min(was.size(), is.size()); ++layer)
    moved += was[layer] != is[layer];
  return moved;
}

Recut recut(Cutting cutting, const Pipeline& pipeline, int steps, const std::vector<Trouble>& troubles,
            std::uint64_t seed) {
  Recut result;
  result.cutting = cutting;
  Disturbance disturbance(troubles, seed);
  const std::size_t stages = pipeline.speeds.size();
  std::vector<int> cut = pipeline.cut;
  std::vector<double> known;  // how much slower than a sound device each stage was seen to be
  double now = 0;
  for (int step = 0; step < steps; ++step) {
    const std::vector<int> before = cut;
    if (cutting != Cutting::even && !known.empty()) cut = balanced(pipeline, known);
    std::vector<double> busy_s, seen;
    std::size_t layer = 0;
    for (std::size_t s = 0; s < stages; ++s) {
      double work_s = 0;
      for (int i = 0; i < cut[s]; ++i) work_s += pipeline.layer_s[layer++] / pipeline.speeds[s];
      double end_s = now;
      for (const int worker : pipeline.workers[s])
        end_s = std::max(end_s, disturbance.end_of(worker, step, now, work_s));
      busy_s.push_back(end_s - now);
      seen.push_back(work_s > 0 ? busy_s.back() / (work_s * pipeline.speeds[s]) : 1);
    }
    const Spread spread = spread_of(busy_s);
    const double sum_s = std::accumulate(busy_s.begin(), busy_s.end(), 0.0);
    CutStep& one = result.steps.emplace_back();
    one.layers = cut;
    one.busy_s = std::move(busy_s);
    one.std_s = spread.std_s;
    one.max_over_mean = spread.max_over_mean;
    one.longest_s = spread.longest_s;
    // The slowest is busy with one micro-batch after another; before and behind these one passes the others.
    one.step_s = ((pipeline.micro_batches - 1) * spread.longest_s + sum_s) / pipeline.micro_batches;
    one.moved = moved_layers(before, cut);
    now += one.step_s;
    if (known.empty() || cutting == Cutting::dynamic) known = seen;
  }
  result.std_s = mean_behind_first(result.steps, &CutStep::std_s);
  result.max_over_mean = mean_behind_first(result.steps, &CutStep::max_over_mean);
  result.longest_s = mean_behind_first(result.steps, &CutStep::longest_s);
  result.step_s = mean_behind_first(result.steps, &CutStep::step_s);
  return result;
}

std::vector<Recut> recuts(const Base& base, int stages, int steps, const std::vector<Trouble>& troubles,
                          std::uint64_t seed) {
  const int devices = base.job->cluster.devices();
  const int layers = base.job->workload.layers;
  if (base.micro_batch && base.samples_each() % *base.micro_batch != 0)
    throw UserError(
        fmt::format("`micro_batch` {} of {} samples a device", *base.micro_batch, base.samples_each()),
        "expected a divisor");
  if (stages > devices || devices % stages != 0 || stages > layers)
    throw UserError(fmt::format("`stages` {} of {} layers on {} devices", stages, layers, devices),
                    "expected a divisor of the devices, up to the layers");
  Plan plan{base.job, {}};
  plan.choices.pp = stages;
  plan.choices.dp = devices / stages;
  plan.choices.recompute = base.recompute.value_or(Recompute::none);
  plan.choices.recompute_modules = base.recompute_modules;
  plan.choices.micro_batch = base.micro_batch.value_or(half_of(base.samples_each()));
  const std::int64_t of_replica = base.job->training.global_batch / plan.choices.dp;
  check_plan(plan);

  Pipeline pipeline;
  pipeline.micro_batches = static_cast<int>(of_replica / plan.choices.micro_batch);
  pipeline.cut = planner::even_cut(*base.job, stages);
  // As the planner's own cuts have it: each layer there and back, for a step's micro-batches.
  planner::Geometries geometries(base.job);
  std::vector<planner::PipelineStage> sound;
  const planner::PipelineChain chain =
      planner::GraphCuts(base.job).chain(plan.choices, geometries.of(plan.choices), &sound);
  for (const double layer_s : chain.compute_s[static_cast<std::size_t>(sound.front().device)])
    pipeline.layer_s.push_back(layer_s * pipeline.micro_batches);

  auto job = std::make_shared<Job>(*base.job);
  job->cluster = with_trouble(std::move(job->cluster), troubles, false);
  for (int stage = 0; stage < stages; ++stage) {
    double speed = 1;
    std::vector<int>& workers = pipeline.workers.emplace_back();
    for (int i = 0; i < plan.choices.dp; ++i) {
      workers.push_back(stage * plan.choices.dp + i);
      speed = std::min(speed, job->cluster.device_speed(workers.back()));
    }
    pipeline.speeds.push_back(speed);
  }

  std::vector<Recut> results;
  std::vector<Plan> plans;
  plan.job = job;
  for (const Cutting cutting : kCuttings) {
    results.push_back(recut(cutting, pipeline, steps, troubles, seed));
    plan.choices.stage_layers = results.back().steps.back().layers;
    plans.push_back(plan);
  }
  sim::SimulationOptions options;
  options.links = 0;
  const std::vector<sim::Simulation> simulated =
      sim::simulate_all(plans, options, base.jobs > 0 ? base.jobs : processors());
  for (std::size_t i = 0; i < results.size(); ++i) results[i].simulated_s = simulated[i].step_time_s;
  return results;
}

}  // namespace orrery::comparison
