#include "planner/runs/goodput.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "topologies/cluster.h"

namespace orrery::planner {
namespace {

// The mean of min(an exponential of this rate, `seconds`).
double survived_s(double rate, double seconds) {
  return rate > 0 ? -std::expm1(-rate * seconds) / rate : seconds;
}

// Expected seconds until `work_s`, its checkpoint and that one's writing are done in one go, each failure
// followed by the way back: (e^(rate length) - 1) e^(rate down) / rate (Daly 2006, section 4).
double expected_first_s(const TrainingRun& run, double work_s) {
  const double length = work_s + run.checkpoint.stall_s + run.checkpoint.write_s;
  const double rate = run.failures_per_s;
  if (rate <= 0) return length;
  return std::expm1(rate * length) / rate * std::exp(rate * run.down_s());
}

double cycle_length_s(const CheckpointTimes& checkpoint, double work_s) {
  return checkpoint.stall_s + std::max(work_s, checkpoint.write_s);
}

// The run as segments that end with checkpoints: `first` of the first one's work, `next` of the others'.
template <typename First, typename Next>
double sum_of_segments(const TrainingRun& run, std::int64_t every, First first, Next next) {
  ORRERY_CHECK(every >= 1 && run.steps >= 1, "a run without steps");
  const double step_s = run.plan().step_s;
  const std::int64_t full = run.steps / every;
  const double work_s = static_cast<double>(every) * step_s;
  const double rest_s = static_cast<double>(run.steps % every) * step_s;
  if (full == 0) return first(rest_s);
  return first(work_s) + static_cast<double>(full - 1) * next(work_s) + (rest_s > 0 ? next(rest_s) : 0);
}

}  // namespace

double young_interval_s(double stall_s, double mtti_s) {
  return std::sqrt(2 * stall_s * mtti_s);
}

double daly_interval_s(double stall_s, double mtti_s) {
  if (stall_s >= 2 * mtti_s) return mtti_s;
  const double ratio = stall_s / (2 * mtti_s);
  return young_interval_s(stall_s, mtti_s) * (1 + std::sqrt(ratio) / 3 + ratio / 9) - stall_s;
}

double expected_cycle_s(const TrainingRun& run, double work_s) {
  const double rate = run.failures_per_s;
  const double again_s = work_s + run.checkpoint.stall_s + run.checkpoint.write_s;
  return survived_s(rate, cycle_length_s(run.checkpoint, work_s)) * std::exp(rate * (again_s + run.down_s()));
}

namespace {

// Of a run without end.
std::int64_t best_interval_by_step(const TrainingRun& run) {
  const auto by_step = [&](std::int64_t every) {
    const auto steps = static_cast<double>(every);
    return expected_cycle_s(run, steps * run.plan().step_s) / steps;
  };
  std::int64_t low = 1, high = run.steps;  // it falls, then rises
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    if (by_step(middle + 1) < by_step(middle)) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

std::int64_t divided_up(std::int64_t value, std::int64_t by) {
  return (value + by - 1) / by;
}

}  // namespace

double expected_active_s(const TrainingRun& run, std::int64_t every) {
  return sum_of_segments(
      run, every, [&](double work_s) { return expected_first_s(run, work_s); },
      [&](double work_s) { return expected_cycle_s(run, work_s); });
}

double failure_free_s(const TrainingRun& run, std::int64_t every) {
  return sum_of_segments(
      run, every, [&](double work_s) { return work_s + run.checkpoint.stall_s + run.checkpoint.write_s; },
      [&](double work_s) { return cycle_length_s(run.checkpoint, work_s); });
}

std::int64_t best_interval(const TrainingRun& run) {
  constexpr std::int64_t kNear = 16;
  const std::int64_t by_step = best_interval_by_step(run);
  const std::int64_t segments = divided_up(run.steps, by_step);
  std::int64_t best = by_step;
  double best_s = expected_active_s(run, best);
  const auto consider = [&](std::int64_t every) {
    const double seconds = expected_active_s(run, every);
    if (seconds < best_s || (seconds == best_s && every > best)) {
      best_s = seconds;
      best = every;
    }
  };
  for (std::int64_t away = -kNear; away <= kNear; ++away) {
    consider(std::clamp<std::int64_t>(by_step + away, 1, run.steps));
    consider(divided_up(run.steps, std::clamp<std::int64_t>(segments + away, 1, run.steps)));
  }
  return best;
}

double erlang_loss(int places, double load) {
  double blocked = 1;
  for (int place = 1; place <= places; ++place) blocked = load * blocked / (place + load * blocked);
  return blocked;
}

double waiting_share(const TrainingRun& run) {
  return erlang_loss(run.spares + 1, run.failures_per_s * run.repair_s);
}

double expected_run_s(const TrainingRun& run, std::int64_t every) {
  return expected_active_s(run, every) / (1 - waiting_share(run));
}

int cheapest_spares(const TrainingRun& run) {
  const double load = run.failures_per_s * run.repair_s;
  const auto node_s = [&](int spares, double blocked) {
    return (run.plan().nodes + spares) / (1 - blocked);  // for each second that the job holds its nodes
  };
  double blocked = load / (1 + load);
  int spares = 0;
  for (; spares < kMaxNodes; ++spares) {  // it falls, then rises: each spare does less than the one before
    const double next = load * blocked / (spares + 2 + load * blocked);
    if (node_s(spares + 1, next) >= node_s(spares, blocked)) break;
    blocked = next;
  }
  return spares;
}

}  // namespace orrery::planner
