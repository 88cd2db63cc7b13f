// One strategy through a stretch of time in which things go wrong: who stops, who goes on, what is lost.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "compare/race.h"
#include "compare/strategy.h"
#include "compare/trouble.h"

namespace orrery::comparison {

struct OrdealOptions {
  double horizon_s = 0;             // 0: an hour where somebody dies, leaves or joins, else 400 steps
  double checkpoint_every_s = 600;  // TensorFlow's MonitoredTrainingSession: 600
  double restart_s = 60;            // to start, or to meet again
  double replace_s = 300;           // until what died is replaced
  std::uint64_t seed = 1;
};

// The workers as a race needs them, by how many there are.
struct Field {
  std::vector<double> compute_s;  // of a step, by rank
  double healthy_s = 0;           // compute of a sound one: of those who join
  double samples_each = 0;        // of a worker's step
  double step_s = 0;              // of a healthy step of all
  int of_node = 1;                // workers that share a node
  struct Exchange {
    double quiet_s = 0, busy_s = 0, average_s = 0;
  };
  std::function<Exchange(int workers)> exchange;
};

struct Ordeal {
  double horizon_s = 0;
  double samples = 0;  // trained and kept
  double lost_samples = 0;
  double dropped = 0;                          // workers' steps that came too late
  double stood_s = 0;                          // nobody trained
  double mean_waiting = 0, worst_waiting = 0;  // shares of the time that a worker trains
  int workers = 0;                             // in the end
  std::vector<std::string> story;
  double samples_per_s() const { return horizon_s > 0 ? samples / horizon_s : 0; }
};

double horizon_of(const OrdealOptions& options, const std::vector<Trouble>& troubles, double step_s);
// Numbers of workers that the strategy comes to, beside the first.
std::vector<int> sizes_of(const Strategy& strategy, const std::vector<Trouble>& troubles, int workers,
                          int of_node);
Ordeal ordeal_of(const Strategy& strategy, const Field& field, const std::vector<Trouble>& troubles,
                 const OrdealOptions& options);

}  // namespace orrery::comparison
