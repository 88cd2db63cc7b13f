// Whole training runs on devices that fail, event by event, with random failures and repairs: what the closed
// form of goodput.h cannot say (how runs spread, elasticity) and what it is tested against.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/runs/goodput.h"

namespace orrery::planner {

// Seconds of a run by what they went to.
struct TimeSpent {
  double productive = 0;  // steps that counted, each at the whole plan's step time
  double checkpoint = 0;  // standing still for checkpoints that were kept
  double rework = 0;      // since the checkpoint that an interruption sent the job back to
  double detect = 0;
  double restart = 0;   // restarting and reading, also in order to grow again
  double wait = 0;      // for a node
  double degraded = 0;  // what steps that counted took longer on fewer nodes

  double total() const { return productive + checkpoint + rework + detect + restart + wait + degraded; }
};

struct RunOutcome {
  TimeSpent spent;
  std::int64_t interruptions = 0;
  std::vector<double> working_s;  // by TrainingRun::plans: in steps, those done again too
};

// The same for the same arguments. The n-th failure and its repair are drawn by (seed, index, n) alone, so
// two runs that differ in spares meet the same failures. Throws NoAnswer when it is interrupted more than
// kMostInterruptions times.
RunOutcome simulate_run(const TrainingRun& run, std::int64_t every, std::uint64_t seed, std::uint64_t index);
constexpr std::int64_t kMostInterruptions = 5'000'000;

struct Distribution {
  double mean = 0, p5 = 0, p50 = 0, p95 = 0;
};
// Percentiles between the two nearest values, linearly. `values` must not be empty.
Distribution distribution_of(std::vector<double> values);

struct RunStatistics {
  Distribution time_s;
  double time_error_s = 0;  // standard error of the mean
  Distribution interruptions;
  TimeSpent spent;                // mean
  std::vector<double> working_s;  // mean
};
// Throws NoAnswer where the closed form says that `runs` runs would be interrupted more than
// kMostInterruptions times together.
RunStatistics simulate_runs(const TrainingRun& run, std::int64_t every, int runs, std::uint64_t seed);

}  // namespace orrery::planner
