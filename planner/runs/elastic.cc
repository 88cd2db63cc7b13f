#include "planner/runs/elastic.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "planner/closed_form/load_balancing.h"
#include "planner/evaluation/evaluation.h"
#include "planner/search/search.h"
#include "planner/space/abilities.h"
#include "planner/uncertainty/outlook.h"
#include "program/schedule.h"
#include "sim/simulator.h"

namespace orrery::planner {
namespace {

constexpr std::size_t kFormsSimulated = 2;

// Nodes that so many replicas fill; 0 where they fill no whole number of them.
int nodes_of_replicas(const Plan& plan, int replicas) {
  const int devices = plan.choices.world() / plan.choices.dp * replicas;
  const int per_node = plan.job->cluster.groups.front().node.devices;
  return devices % per_node == 0 ? devices / per_node : 0;
}

std::vector<std::int64_t> even_batches(const Plan& plan, const Choices& choices) {
  const std::int64_t micro_batches = plan.job->training.global_batch / choices.micro_batch;
  const std::int64_t unit = micro_batch_rule(choices.schedule, choices.pp).unit;
  const std::vector<double> alike(static_cast<std::size_t>(choices.dp), 1.0);
  std::vector<std::int64_t> batches = balanced_shares(alike, micro_batches, unit);
  for (std::int64_t& batch : batches) batch *= choices.micro_batch;
  return batches;
}

std::vector<RunningPlan> without_slower_than_smaller(const std::vector<RunningPlan>& plans) {
  std::vector<RunningPlan> kept;
  for (auto plan = plans.rbegin(); plan != plans.rend(); ++plan)
    if (kept.empty() || plan->step_s < kept.back().step_s) kept.push_back(*plan);
  std::reverse(kept.begin(), kept.end());
  return kept;
}

std::vector<Choices> choices_with_replicas(const Plan& plan, int replicas) {
  Choices choices = plan.choices;
  choices.dp = replicas;
  if (choices.hybrid() && replicas * choices.cp % choices.shard_group != 0) choices.shard_group = 0;
  std::vector<Choices> schedules = {choices};
  if (choices.interleave > 1) {
    choices.schedule = Schedule::one_f_one_b;
    choices.interleave = 1;
    choices.stage_layers.clear();
    schedules.push_back(choices);
  }
  std::vector<Choices> all;
  for (Choices& one : schedules)
    for (int micro_batch = plan.choices.micro_batch; micro_batch >= 1; --micro_batch) {
      if (plan.choices.micro_batch % micro_batch != 0) continue;
      one.micro_batch = micro_batch;
      one.replica_batches.clear();
      if (!plan.job->training.divides_over(replicas, micro_batch))
        one.replica_batches = even_batches(plan, one);
      all.push_back(one);
    }
  return all;
}

// As likely to fit as a searched plan, or as the plan that runs where that was chosen to be less so.
double probability_to_fit(const Plan& plan) {
  const Memory memory = predict_memory(plan);
  return std::min(SearchOptions{}.fit_probability,
                  fit_probability(memory.needed, memory.capacity, spread_of(*plan.job)));
}

// The same with the fewest more layers run again that make room; nothing where none do, or the runtime
// cannot.
std::optional<Plan> with_more_recomputed(Plan plan, const std::function<bool(const Plan&)>& fits) {
  Choices& c = plan.choices;
  const bool partly = c.recompute == Recompute::full && c.recompute_layers > 0;
  if (!plan.job->workload.transformer || (c.recompute != Recompute::none && !partly)) return std::nullopt;
  int least = c.recompute_layers + 1, most = layers_of_largest_stage(plan);
  c.recompute = Recompute::full;
  c.recompute_layers = most;
  if (least > most || why_cannot_run(plan.job->runtime, plan.job->workload, c) || !fits(plan))
    return std::nullopt;
  while (least < most) {
    c.recompute_layers = (least + most) / 2;
    if (fits(plan))
      most = c.recompute_layers;
    else
      least = c.recompute_layers + 1;
  }
  c.recompute_layers = most;
  return plan;
}

}  // namespace

std::vector<Plan> forms_with_replicas(const Plan& plan, int replicas, std::string& refusal) {
  const int nodes = nodes_of_replicas(plan, replicas);
  if (nodes == 0) {
    refusal = fmt::format("{} of its {} replicas do not fill whole nodes", replicas, plan.choices.dp);
    return {};
  }
  auto job = std::make_shared<Job>(*plan.job);
  job->cluster = with_nodes(std::move(job->cluster), nodes);
  const double wanted = probability_to_fit(plan);
  const Spread spread = spread_of(*job);
  const auto probability = [&](const Memory& memory) {
    return fit_probability(memory.needed, memory.capacity, spread);
  };
  const auto surely_fits = [&](const Memory& memory) {
    return memory.fits() && probability(memory) >= wanted * (1 - 1e-9);
  };
  std::vector<std::pair<double, Plan>> found;
  for (const Choices& choices : choices_with_replicas(plan, replicas)) {
    const Plan form{job, choices};
    try {
      check_plan(form);
    } catch (const UserError& error) {
      refusal = error.what();
      continue;
    }
    const Memory memory = predict_memory(form);
    const std::optional<Plan> fitting =
        surely_fits(memory)
            ? std::optional(form)
            : with_more_recomputed(form, [&](const Plan& one) { return surely_fits(predict_memory(one)); });
    if (fitting) {
      found.emplace_back(estimate_step_seconds(*fitting), *fitting);
    } else if (memory.fits()) {
      refusal = fmt::format("{} would fit in memory with {:.0f}% probability, not {:.0f}%",
                            counted(replicas, "replica"), 100 * probability(memory), 100 * wanted);
    } else {
      refusal = fmt::format("{} would need {} of a device's {}", counted(replicas, "replica"),
                            human_bytes(memory.total), human_bytes(memory.capacity));
    }
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Plan> forms;
  for (std::size_t i = 0; i < found.size() && i < kFormsSimulated; ++i) forms.push_back(found[i].second);
  return forms;
}

int nodes_lost_at_most(double failures_per_s, double repair_s) {
  constexpr double kRare = 1e-6;
  const double load = failures_per_s * repair_s;
  double term = std::exp(-load), below = term;
  int nodes = 0;
  while (1 - below > kRare && nodes < kMaxNodes) {
    ++nodes;
    term *= load / nodes;
    below += term;
  }
  return nodes;
}

std::vector<RunningPlan> smaller_plans(const Plan& plan, int least_nodes, int jobs) {
  if (plan.job->cluster.groups.size() > 1)
    throw UserError("`elastic`: " + plan.job->cluster.name + " has nodes of several types",
                    "expected nodes of one type, which can stand in for each other");
  std::string refusal = "there is only one";
  std::vector<Plan> forms;
  int levels = 0;
  int last_nodes = plan.job->cluster.nodes();
  for (int replicas = plan.choices.dp - 1;
       replicas >= 1 && levels < kMostSmallerPlans && last_nodes > least_nodes; --replicas) {
    const std::vector<Plan> found = forms_with_replicas(plan, replicas, refusal);
    if (found.empty()) continue;
    last_nodes = found.front().job->cluster.nodes();
    ++levels;
    forms.insert(forms.end(), found.begin(), found.end());
  }
  if (forms.empty())
    throw NoAnswer(
        fmt::format("`elastic`: {} cannot continue with fewer replicas: {}", describe(plan), refusal));
  sim::SimulationOptions options;
  options.keep_timeline = false;
  const std::vector<sim::Simulation> simulations = sim::simulate_all(forms, options, jobs);
  std::vector<RunningPlan> smaller;
  for (std::size_t i = 0; i < forms.size(); ++i) {
    const RunningPlan one{forms[i].job->cluster.nodes(), simulations[i].step_time_s, simulations[i].energy_j};
    if (smaller.empty() || smaller.back().nodes != one.nodes) {
      smaller.push_back(one);
    } else if (one.step_s < smaller.back().step_s) {
      smaller.back() = one;
    }
  }
  return without_slower_than_smaller(smaller);
}

}  // namespace orrery::planner
