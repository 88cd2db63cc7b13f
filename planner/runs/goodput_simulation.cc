#include "planner/runs/goodput_simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "base/error.h"
#include "base/random.h"
#include "base/statistics.h"

namespace orrery::planner {
namespace {

// Checkpoints in an undisturbed stretch of training, counted from 1: when each is complete and how much work
// lies before it.
class Stretch {
 public:
  Stretch(const CheckpointTimes& checkpoint, double step_s, std::int64_t every, std::int64_t steps)
      : checkpoint_(checkpoint), step_s_(step_s), every_(every), steps_(steps), full_(steps / every) {}

  std::int64_t checkpoints() const { return full_ + (steps_ % every_ > 0 ? 1 : 0); }
  std::int64_t steps_until(std::int64_t checkpoint) const { return std::min(checkpoint * every_, steps_); }
  double complete_s(std::int64_t checkpoint) const {
    const double first = std::min(work_s(every_), work_s(steps_)) + checkpoint_.stall_s + checkpoint_.write_s;
    if (checkpoint <= 1) return first;
    const std::int64_t whole = std::min(checkpoint, full_);
    const double last = checkpoint > full_ ? cycle_s(steps_ % every_) : 0;
    return first + static_cast<double>(whole - 1) * cycle_s(every_) + last;
  }
  // How many are complete after so long, before checkpoint `last`.
  std::int64_t complete_before(std::int64_t last, double seconds) const {
    const double first = complete_s(1);
    if (seconds < first) return 0;
    const double cycles = std::floor((seconds - first) / cycle_s(every_));
    return std::min(1 + static_cast<std::int64_t>(std::min(cycles, static_cast<double>(full_))), last - 1);
  }
  // The first that is complete then or later; the last where there is none.
  std::int64_t first_complete_from(double seconds) const {
    const double first = complete_s(1);
    if (seconds <= first) return 1;
    const double cycles = std::ceil((seconds - first) / cycle_s(every_));
    return std::min(1 + static_cast<std::int64_t>(std::min(cycles, static_cast<double>(full_))),
                    checkpoints());
  }
  // Standing still up to the moment that the state of a checkpoint is taken and training goes on.
  double stalled_s(std::int64_t checkpoint) const {
    if (checkpoint == 0) return 0;
    return complete_s(checkpoint) - checkpoint_.write_s - work_s(steps_until(checkpoint));
  }

 private:
  double work_s(std::int64_t steps) const { return static_cast<double>(steps) * step_s_; }
  double cycle_s(std::int64_t steps) const {
    return checkpoint_.stall_s + std::max(work_s(steps), checkpoint_.write_s);
  }

  const CheckpointTimes& checkpoint_;
  double step_s_;
  std::int64_t every_, steps_, full_;
};

class RunInTime {
 public:
  RunInTime(const TrainingRun& run, std::int64_t every, std::uint64_t seed, std::uint64_t index)
      : run_(run), every_(every), random_(seed, index), hazard_left_(exponential(0)) {
    outcome_.working_s.resize(run.plans.size());
  }

  RunOutcome finish() {
    while (kept_ < run_.steps) {
      if (!train()) {
        recover();
      } else if (kept_ < run_.steps) {
        grow();
      }
    }
    return std::move(outcome_);
  }

 private:
  double exponential(std::uint64_t draw) const { return -std::log1p(-random_.uniform(draw)); }

  // Lets time pass, at most until the next failure; false where one came.
  bool pass(double seconds, double& elapsed) {
    const RunningPlan& plan = run_.plans[plan_];
    const double rate = run_.failures_per_s * plan.nodes / run_.plan().nodes;
    const double hazard = rate * seconds;
    if (hazard <= hazard_left_) {
      hazard_left_ -= hazard;
      elapsed = seconds;
      now_ += seconds;
      return true;
    }
    elapsed = hazard_left_ / rate;
    now_ += elapsed;
    fail();
    return false;
  }
  bool spend(double seconds, double& on) {
    double elapsed = 0;
    const bool undisturbed = pass(seconds, elapsed);
    on += elapsed;
    return undisturbed;
  }

  void fail() {
    const auto failure = static_cast<std::uint64_t>(++outcome_.interruptions);
    if (outcome_.interruptions > kMostInterruptions)
      throw NoAnswer(fmt::format("the run does not end: it was interrupted {} times and is at step {} of {}",
                                 kMostInterruptions, kept_, run_.steps));
    hazard_left_ = exponential(2 * failure);
    if (run_.repair_s > 0) repaired_.insert(now_ + run_.repair_s * exponential(2 * failure + 1));
  }

  int nodes_and_spares() const { return run_.plan().nodes + run_.spares; }

  // When no more than so many nodes are in repair.
  double repaired_down_to(int nodes) const {
    const auto more = static_cast<std::ptrdiff_t>(repaired_.size()) - nodes;
    return more <= 0 ? now_ : *std::next(repaired_.begin(), more - 1);
  }

  // The largest plan that the sound nodes carry; waits where they carry none.
  void take_nodes() {
    const double until = repaired_down_to(nodes_and_spares() - run_.plans.back().nodes);
    outcome_.spent.wait += std::max(0.0, until - now_);
    now_ = std::max(now_, until);
    repaired_.erase(repaired_.begin(), repaired_.upper_bound(now_));
    const int sound = nodes_and_spares() - static_cast<int>(repaired_.size());
    plan_ = 0;
    while (run_.plans[plan_].nodes > sound) ++plan_;
  }

  void recover() {
    TimeSpent& spent = outcome_.spent;
    do {
      while (!spend(run_.detect_s, spent.detect)) {
      }
      take_nodes();
    } while (!spend(run_.restart_s + run_.checkpoint.read_s, spent.restart));
  }

  void grow() {
    take_nodes();
    if (!spend(run_.restart_s + run_.checkpoint.read_s, outcome_.spent.restart)) recover();
  }

  // From the last checkpoint to the end, or to the first checkpoint at which the job can grow; false where
  // it was interrupted.
  bool train() {
    const RunningPlan& plan = run_.plans[plan_];
    const Stretch stretch(run_.checkpoint, plan.step_s, every_, run_.steps - kept_);
    std::int64_t last = stretch.checkpoints();
    if (plan_ > 0) {
      const double larger = repaired_down_to(nodes_and_spares() - run_.plans[plan_ - 1].nodes);
      last = stretch.first_complete_from(larger - now_);
    }
    double elapsed = 0;
    const bool undisturbed = pass(stretch.complete_s(last), elapsed);
    const std::int64_t complete = undisturbed ? last : stretch.complete_before(last, elapsed);
    const auto steps = static_cast<double>(stretch.steps_until(complete));
    const double work_s = steps * plan.step_s;
    const double stalled_s = undisturbed ? elapsed - work_s : stretch.stalled_s(complete);
    const double rework_s = elapsed - work_s - stalled_s;
    kept_ += stretch.steps_until(complete);
    outcome_.spent.productive += steps * run_.plan().step_s;
    outcome_.spent.degraded += steps * (plan.step_s - run_.plan().step_s);
    outcome_.spent.checkpoint += stalled_s;
    outcome_.spent.rework += rework_s;
    outcome_.working_s[plan_] += work_s + rework_s;
    return undisturbed;
  }

  const TrainingRun& run_;
  std::int64_t every_;
  CounterRandom random_;
  double hazard_left_;  // of the next failure, in units of its mean
  double now_ = 0;
  std::size_t plan_ = 0;
  std::int64_t kept_ = 0;
  std::multiset<double> repaired_;  // when each node in repair will be back
  RunOutcome outcome_;
};

void add(TimeSpent& sum, const TimeSpent& spent, double share) {
  for (double TimeSpent::*part :
       {&TimeSpent::productive, &TimeSpent::checkpoint, &TimeSpent::rework, &TimeSpent::detect,
        &TimeSpent::restart, &TimeSpent::wait, &TimeSpent::degraded})
    sum.*part += share * spent.*part;
}

double standard_error(const std::vector<double>& values, double mean) {
  if (values.size() < 2) return 0;
  const double squares = std::accumulate(values.begin(), values.end(), 0.0, [&](double sum, double value) {
    return sum + (value - mean) * (value - mean);
  });
  const auto count = static_cast<double>(values.size());
  return std::sqrt(squares / (count - 1) / count);
}

}  // namespace

RunOutcome simulate_run(const TrainingRun& run, std::int64_t every, std::uint64_t seed, std::uint64_t index) {
  return RunInTime(run, every, seed, index).finish();
}

Distribution distribution_of(std::vector<double> values) {
  ORRERY_CHECK(!values.empty(), "a distribution of nothing");
  std::sort(values.begin(), values.end());
  const auto at = [&](double share) {
    const double place = share * static_cast<double>(values.size() - 1);
    const auto below = static_cast<std::size_t>(place);
    const std::size_t above = std::min(below + 1, values.size() - 1);
    return values[below] + (values[above] - values[below]) * (place - static_cast<double>(below));
  };
  // Of values that are all alike it is that value, whatever summing them rounds.
  const double within = std::clamp(mean(values), values.front(), values.back());
  return {within, at(0.05), at(0.5), at(0.95)};
}

RunStatistics simulate_runs(const TrainingRun& run, std::int64_t every, int runs, std::uint64_t seed) {
  const double expected = expected_active_s(run, every) * run.failures_per_s * runs;
  if (!(expected <= static_cast<double>(kMostInterruptions)))
    throw NoAnswer(fmt::format(
        "{} runs with {:.3g} interruptions each are too many to simulate (at most {} interruptions in "
        "all): ask for fewer runs, or a longer mean time between failures",
        runs, expected / runs, kMostInterruptions));
  RunStatistics statistics;
  statistics.working_s.resize(run.plans.size());
  std::vector<double> times, interruptions;
  for (int i = 0; i < runs; ++i) {
    const RunOutcome outcome = simulate_run(run, every, seed, static_cast<std::uint64_t>(i));
    times.push_back(outcome.spent.total());
    interruptions.push_back(static_cast<double>(outcome.interruptions));
    add(statistics.spent, outcome.spent, 1.0 / runs);
    for (std::size_t p = 0; p < run.plans.size(); ++p) statistics.working_s[p] += outcome.working_s[p] / runs;
  }
  statistics.time_s = distribution_of(times);
  statistics.time_error_s = standard_error(times, statistics.time_s.mean);
  statistics.interruptions = distribution_of(interruptions);
  return statistics;
}

}  // namespace orrery::planner
