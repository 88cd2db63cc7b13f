#include "planner/hints/tensor_overlap_hint.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/format.h"
#include "base/parallel.h"
#include "planner/evaluation/interval.h"
#include "planner/search/agenda.h"
#include "planner/search/candidates.h"
#include "planner/space/tensor_overlap.h"

namespace orrery::planner {
namespace {

constexpr double kWorthSaying = 0.01;  // of the step
// Choices that are simulated, and plans that the closed form keeps in order for them.
constexpr std::size_t kSimulated = 3;
constexpr int kKept = 8;

double least_step_s(const SearchResult& result) {
  double least = result.plans.front().step_time_s();
  for (const Evaluation& one : result.plans) least = std::min(least, one.step_time_s());
  return result.nominal ? std::min(least, result.nominal->step_time_s()) : least;
}

// The most promising of as many choices that the setting reaches.
std::vector<Candidate> promising(const std::shared_ptr<const Job>& job, const Pins& pins,
                                 double fit_probability) {
  Estimator estimator(job);
  const Spread spread = spread_of(*job);
  const Room room{std::min(1.0, fillable_share(fit_probability, spread))};
  std::vector<Candidate> found;
  for (const Candidate& one : gather(job, pins, Objective::step_time, kKept, estimator, room).promising) {
    const auto known = [&](const Candidate& other) { return same_choice(one.choices, other.choices); };
    if (tensor_overlap_reaches(*job, one.choices) && std::none_of(found.begin(), found.end(), known))
      found.push_back(one);
    if (found.size() == kSimulated) break;
  }
  return found;
}

std::optional<Evaluation> fastest_simulated(const std::shared_ptr<const Job>& job,
                                            const std::vector<Candidate>& candidates, int jobs) {
  sim::SimulationOptions simulation;
  simulation.keep_timeline = false;
  simulation.condense = true;
  std::vector<Plan> plans;
  for (const Candidate& one : candidates) plans.push_back({job, one.choices});
  std::optional<Evaluation> fastest;
  std::vector<sim::Simulation> results = sim::simulate_all(plans, simulation, jobs > 0 ? jobs : processors());
  for (std::size_t i = 0; i < plans.size(); ++i) {
    if (fastest && results[i].step_time_s >= fastest->step_time_s()) continue;
    fastest.emplace();
    fastest->plan = plans[i];
    fastest->memory = predict_memory(plans[i]);
    fastest->estimate_s = candidates[i].times.estimate_s;
    fastest->simulation = std::move(results[i]);
  }
  return fastest;
}

}  // namespace

void hint_at_tensor_overlap(const Pins& pins, const SearchOptions& options, SearchResult* result) {
  const Job& job = *result->plans.front().plan.job;
  const bool timed = options.objective == Objective::step_time || options.objective == Objective::cost;
  if (!timed || pins.tp == 1 || !may_turn_on_tensor_overlap(job.runtime)) return;
  const auto start = std::chrono::steady_clock::now();
  const auto overlapped = std::make_shared<Job>(job);
  set_tensor_overlap(true, pins.any_runtime, overlapped.get());
  const std::vector<Candidate> candidates = promising(overlapped, pins, options.fit_probability);
  const double limit_s = least_step_s(*result) * (1 - kWorthSaying);
  std::optional<Evaluation> fastest = fastest_simulated(overlapped, candidates, options.jobs);
  result->search_s += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (!fastest || fastest->step_time_s() > limit_s) return;
  add_interval(&*fastest);
  result->why_tensor_overlap =
      fmt::format("With `overlap_tensor` on ({} in {}) a step is {:.1f}% faster: {} takes {}.",
                  job.runtime.tensor_overlap_setting, job.runtime.name,
                  100 * (1 - fastest->step_time_s() / result->plans.front().step_time_s()),
                  describe(fastest->plan), human_seconds(fastest->step_time_s()));
  result->why += " " + result->why_tensor_overlap;
  result->tensor_overlap = std::move(fastest);
}

}  // namespace orrery::planner
