#include "sim/asynchronous_pace.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace orrery::sim {
namespace {

// Steps of the fastest for each of the slowest, after which the simulation ends all the same.
constexpr int kMostTimesSlower = 32;

}  // namespace

AsynchronousPace::AsynchronousPace(const Scenario& scenario, int steps) : scenario_(scenario), steps_(steps) {
  for (const RankScript& rank : scenario.ranks) workers_.push_back(rank.worker);
  std::sort(workers_.begin(), workers_.end());
  workers_.erase(std::unique(workers_.begin(), workers_.end()), workers_.end());
  const int ranks = workers_.empty() ? 0 : workers_.back() + 1;
  counters_.resize(static_cast<std::size_t>(scenario.push_counters));
  for (PushCounter& counter : counters_) counter.applied.assign(static_cast<std::size_t>(ranks), 0);
  marks_.resize(scenario.ranks.size());
  late_steps.assign(scenario.ranks.size(), 0);
  late_s.assign(scenario.ranks.size(), 0);
}

int AsynchronousPace::slowest(const PushCounter& counter) const {
  int least = std::numeric_limits<int>::max();
  for (const int worker : workers_)
    least = std::min(least, counter.applied[static_cast<std::size_t>(worker)]);
  return least;
}

bool AsynchronousPace::must_wait(const Task& task, int rank, std::size_t id) {
  PushCounter& counter = counters_[static_cast<std::size_t>(task.pushes)];
  const int ahead = counter.applied[static_cast<std::size_t>(script(rank).worker)] - slowest(counter);
  if (ahead <= task.lead) return false;
  counter.waiting.push_back(id);
  return true;
}

std::vector<std::size_t> AsynchronousPace::count_push(const Task& task, int rank) {
  PushCounter& counter = counters_[static_cast<std::size_t>(task.pushes)];
  ++counter.applied[static_cast<std::size_t>(script(rank).worker)];
  return std::exchange(counter.waiting, {});
}

bool AsynchronousPace::end_step(int rank, int steps_done, double now_s) {
  const std::size_t workers = scenario_.ranks.size() - scenario_.services.size();
  if (steps_done == steps_ / 2) ++half_done_;
  late_ = late_ || half_done_ == workers || steps_done >= kMostTimesSlower * steps_ / 2;
  if (steps_done == steps_) ++done_;
  Mark& mark = marks_[static_cast<std::size_t>(rank)];
  if (late_ && mark.step == 0) {
    mark = {steps_done, now_s};
  } else if (mark.step > 0) {
    late_steps[static_cast<std::size_t>(rank)] = steps_done - mark.step;
    late_s[static_cast<std::size_t>(rank)] = now_s - mark.time_s;
  }
  return done_ == workers || steps_done >= kMostTimesSlower * steps_;
}

}  // namespace orrery::sim
