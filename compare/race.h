// Workers that step for a while, each at its own speed from moment to moment, and wait for each other as
// their strategy has it.
#pragma once

#include <cstdint>
#include <vector>

#include "compare/strategy.h"
#include "compare/trouble.h"

namespace orrery::comparison {

struct Race {
  Rendezvous rendezvous = Rendezvous::all;
  int backups = 0, staleness = 0, local_steps = 1;
  std::vector<double> compute_s;  // of a step, by worker; the first `ids` name them to the disturbance
  std::vector<int> ids;           // empty: 0, 1, …
  double exchange_s = 0;  // that a step takes beyond the slowest computation; asynchronous: of each worker
  double busy_exchange_s = 0;  // the same while a neighbour is at it
  double average_s = 0;        // Rendezvous::periodic: of one average
  double dispatch_s = 0;       // that the master, who has one queue, takes to hand out a step
};

struct Raced {
  double worker_steps = 0;        // that counted, the last ones in parts
  double dropped = 0;             // that came too late and did not
  std::vector<double> waiting_s;  // by worker, over the whole race: for others, and for the master
  double mean_waiting_share() const;
  double worst_waiting_share() const;
  double seconds = 0;
};

// From `begin_s` to `end_s`.
Raced race(const Race& race, Disturbance& disturbance, double begin_s, double end_s);

}  // namespace orrery::comparison
