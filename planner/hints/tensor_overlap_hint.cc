#include "planner/hints/tensor_overlap_hint.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/format.h"
#include "base/parallel.h"
#include "planner/closed_form/memory_model.h"
#include "planner/evaluation/interval.h"
#include "planner/search/agenda.h"
#include "planner/search/candidates.h"
#include "planner/space/tensor_overlap.h"

namespace orrery::planner {
namespace {

constexpr double kWorthSaying = 0.01;  // of the step
constexpr std::size_t kSimulated = 2;  // choices

double least_step_s(const SearchResult& result) {
  double least = result.plans.front().step_time_s();
  for (const Evaluation& one : result.plans) least = std::min(least, one.step_time_s());
  return result.nominal ? std::min(least, result.nominal->step_time_s()) : least;
}

// The plans that the setting reaches and that the closed form makes fastest, below a limit: families best
// bound first, until none can be among them.
class Promising {
 public:
  Promising(const std::shared_ptr<const Job>& job, double fit_probability, double limit_s)
      : job_(job), estimator_(job), memory_(job), limit_s_(limit_s) {
    fillable_ = std::min(1.0, fillable_share(fit_probability, spread_of(*job)));
  }

  std::vector<Candidate> find(const Pins& pins) {
    const auto reached = [this](const Choices& core) { return tensor_overlap_reaches(*job_, core); };
    for (const auto& [bound_s, family] : families_by_bound(job_, pins, estimator_, reached)) {
      if (bound_s >= threshold_s()) break;
      look_into(family);
    }
    return std::move(found_);
  }

 private:
  double threshold_s() const {
    return found_.size() < kSimulated ? limit_s_ : found_.back().times.estimate_s;
  }

  void look_into(const Family& family) {
    for (const Recomputed& recomputed : *family.recomputes) {
      for (const Sharding& sharding : *family.shardings) {
        const Choices choices =
            family.plan(recomputed, sharding, family.overlaps->front(), family.buckets->front().bytes);
        if (estimator_.layout_bound_s(choices) >= threshold_s()) break;
        const Memory memory = memory_.predict(choices);
        if (!memory.fits(fillable_)) continue;
        const Bound least = estimator_.lower_bound(choices);
        if (least.step_s < threshold_s())
          keep({choices, memory.total, estimator_.times(choices, least), 0, 0});
      }
    }
  }

  // Of each choice the fastest.
  void keep(Candidate&& one) {
    if (one.times.estimate_s >= threshold_s()) return;
    for (Candidate& other : found_) {
      if (!same_choice(one.choices, other.choices)) continue;
      if (one.times.estimate_s < other.times.estimate_s) other = std::move(one);
      return sort();
    }
    found_.push_back(std::move(one));
    sort();
  }
  void sort() {
    std::stable_sort(found_.begin(), found_.end(), [](const Candidate& a, const Candidate& b) {
      return a.times.estimate_s < b.times.estimate_s;
    });
    found_.resize(std::min(found_.size(), kSimulated));
  }

  std::shared_ptr<const Job> job_;
  Estimator estimator_;
  MemoryModel memory_;
  double fillable_ = 1, limit_s_;
  std::vector<Candidate> found_;  // by rising estimate
};

std::optional<Evaluation> fastest_simulated(const std::shared_ptr<const Job>& job,
                                            const std::vector<Candidate>& candidates, int jobs) {
  sim::SimulationOptions simulation;
  simulation.keep_timeline = false;
  simulation.condense = true;
  std::vector<Plan> plans;
  for (const Candidate& one : candidates) {
    // What takes long to simulate is simulated alone.
    if (!plans.empty() && sim::expected_activities({job, one.choices}) > kManyActivities) break;
    plans.push_back({job, one.choices});
  }
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
  const double limit_s = least_step_s(*result) * (1 - kWorthSaying);
  const std::vector<Candidate> candidates =
      Promising(overlapped, options.fit_probability, limit_s).find(pins);
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
