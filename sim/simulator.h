// One training step in virtual time, on SimGrid.
//
// Every call takes processes of its own (sim/processes/isolate.h, which says what a program with threads does
// first), so a crash in SimGrid becomes an error of the call. Bit-identical for identical input.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "cost/collective_cost.h"
#include "program/plan.h"
#include "program/timeline.h"

namespace orrery::sim {

// Of a collective: one flow a link it loads, or its algorithm's messages step by step.
enum class Detail { flows, messages };

struct SimulationOptions {
  bool fold = true;               // ranks with equal surroundings are simulated once (sim/scenario/folding.h)
  Detail detail = Detail::flows;  // messages: every rank is simulated
  int steps = 0;  // 0: as many as the steady state needs (one where a step ends in a global synchronisation)
  bool keep_timeline = true;  // and the programs, and the links' rates
  int links = 20;             // that the result names
  bool condense = false;      // many micro-batches from fewer (sim/condensed.h); not with keep_timeline
};

struct LinkLoad {
  std::string name;
  double utilization = 0;  // fraction of capacity over the simulated time
  double bytes = 0;
};

// What all links of a kind carry, both ways together, of all ranks: each payload evenly from when it sets
// out until it has arrived.
struct LinkRates {
  std::vector<std::string> kinds;  // those that carry something
  struct Sample {
    double at_s = 0;
    std::vector<double> bytes_per_s;  // by kind, until the next sample
  };
  std::vector<Sample> samples;  // by rising time; the last are zeros
};

struct Simulation {
  double step_time_s = 0;           // end of one step to the end of the next
  std::vector<double> step_ends_s;  // of each simulated step, from the start
  std::vector<Program> programs;    // of the simulated ranks, in rank order
  Timeline timeline;
  int ranks = 0;                         // of the plan
  int simulated_ranks = 0;               // fewer where folded
  std::int64_t events = 0;               // activities completed
  std::vector<LinkLoad> links;           // busiest first
  LinkRates link_rates;                  // with the timeline
  int critical_rank = 0;                 // with most compute (lowest index on ties)
  Breakdown breakdown;                   // of that rank
  std::map<std::string, double> busy_s;  // of that rank, one step: seconds by kind_of() of its instructions
  double host_s = 0;                     // of that rank, one step: its host launches kernels
  // Seconds of a step that a device computes: mean over the devices of each pipeline stage, and of each
  // data-parallel replica.
  std::vector<double> stage_compute_s, replica_compute_s;
  // Of all devices and their nodes, one step: idle power throughout, peak power while computing (the
  // profiles' idle_power_w and peak_power_w, the nodes' host_power_w).
  double energy_j = 0;
};

// Throws InternalError when the simulation stalls or its process dies, NoAnswer when a route is dead. Without
// keep_timeline the result has neither timeline nor programs.
Simulation simulate(const Plan& plan, const SimulationOptions& options = {});
// The same over several plans, `jobs` processes at a time; results in order. `progress` is told how many of
// the simulations behind them (two of a condensed plan) have ended.
std::vector<Simulation> simulate_all(const std::vector<Plan>& plans, const SimulationOptions& options,
                                     int jobs, const std::function<void(int done, int count)>& progress = {});
// What a condensed simulation costs, in the measure of passes through layers of one rank a stage.
double expected_passes(const Plan& plan);
// About how many activities it has: a core simulates half a million of them a second, and each takes some 400
// bytes.
double expected_activities(const Plan& plan);
// Whether payloads may meet on links that cannot carry all of them, as far as that can be told before a plan
// is lowered: what one dimension of parallelism sends never did, in any plan seen. They need SimGrid, which
// shares links, and a process of their own with it.
bool may_share_links(const Choices& choices);

struct CollectiveResult {
  double time_s = 0;
  CollectivePlan plan;
  std::int64_t events = 0;
};
// One collective alone on the cluster's first `devices` devices.
CollectiveResult simulate_collective(CollectiveKind kind, double bytes, const Cluster& cluster, int devices,
                                     Detail detail, const Algorithm* forced = nullptr);

}  // namespace orrery::sim
