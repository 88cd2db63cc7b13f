// How far the workers of asynchronous parameter servers are: whose pushes the servers have applied, and from
// when on each one's pace counts.
#pragma once

#include <vector>

#include "sim/scenario/scenario.h"

namespace orrery::sim {

class AsynchronousPace {
 public:
  // Keeps a reference.
  AsynchronousPace(const Scenario& scenario, int steps);

  // Whether a task of a script asks for parameters too far ahead of the slowest worker; then it is handed out
  // when a push of them is applied.
  bool must_wait(const Task& task, int rank, std::size_t id);
  // Returns the tasks that may ask again.
  std::vector<std::size_t> count_push(const Task& task, int rank);

  // A worker (not a service) has done so many steps. All go on until the slowest has done its steps, or the
  // fastest has done far more: returns whether this is so.
  bool end_step(int rank, int steps_done, double now_s);
  // By script: steps after the slowest worker has done half of its, and how long they took.
  std::vector<double> late_steps, late_s;

 private:
  // Pushes of the same parameters at a server, by rank that pushes, and who waits for the slowest.
  struct PushCounter {
    std::vector<int> applied;
    std::vector<std::size_t> waiting;  // tasks
  };
  struct Mark {
    int step = 0;  // the late steps begin after so many; 0: not yet
    double time_s = 0;
  };

  const RankScript& script(int rank) const { return scenario_.ranks[static_cast<std::size_t>(rank)]; }
  int slowest(const PushCounter& counter) const;

  const Scenario& scenario_;
  int steps_ = 0;
  std::vector<int> workers_;  // that are simulated or that someone serves, ascending
  std::vector<PushCounter> counters_;
  std::vector<Mark> marks_;
  bool late_ = false;
  std::size_t half_done_ = 0, done_ = 0;  // workers
};

}  // namespace orrery::sim
