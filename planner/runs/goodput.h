// How long a training run takes on devices that fail: the model, and its closed form. Everything in seconds.
//
// A run is `steps` steps with a checkpoint after every `every` of them and one after the last. What
// interrupts the job comes as a Poisson process while the job holds its nodes: it trains, writes, finds out,
// restarts or reads; not while it waits for a node. An interruption costs detect_s, a wait for a node where
// none is left, restart_s and read_s, and the job goes on from its last complete checkpoint; what interrupts
// that begins it anew. docs/goodput.md derives the formulas.
#pragma once

#include <cstdint>
#include <vector>

namespace orrery::planner {

struct CheckpointTimes {
  double stall_s = 0;  // that training stands still for a checkpoint
  double write_s = 0;  // from then on until it is complete, beside training; the next one waits for that
  double read_s = 0;
};

// A plan as a run needs it: how many nodes it takes and how fast it is on them.
struct RunningPlan {
  int nodes = 0;
  double step_s = 0;
  double energy_j = 0;  // of one step
};

struct TrainingRun {
  std::int64_t steps = 0;
  double failures_per_s = 0;  // of all nodes of the plan together
  CheckpointTimes checkpoint;
  double detect_s = 0;
  double restart_s = 0;
  int spares = 0;       // nodes; one takes a failed node's place without delay
  double repair_s = 0;  // of a node, mean of an exponential; 0: it is back by the time the job restarts
  // The plan; behind it, of an elastic run, those that it goes on with on fewer nodes, by falling number.
  std::vector<RunningPlan> plans;

  const RunningPlan& plan() const { return plans.front(); }
  double ideal_s() const { return static_cast<double>(steps) * plan().step_s; }
  double down_s() const { return detect_s + restart_s + checkpoint.read_s; }
};

// The work between two checkpoints, in seconds of steps, that loses least: J. T. Daly, "A higher order
// estimate of the optimum checkpoint interval for restart dumps", FGCS 22 (2006), doi
// 10.1016/j.future.2004.11.016, equation 37. `mtti_s`: mean time between what interrupts.
double daly_interval_s(double stall_s, double mtti_s);
// Its first order: J. W. Young, CACM 17 (1974), sqrt(2 stall mtti).
double young_interval_s(double stall_s, double mtti_s);

// Expected seconds from one complete checkpoint to the next with `work_s` of work between them, in the middle
// of a run whose failed nodes are replaced without delay. Infinite where a double cannot hold it.
double expected_cycle_s(const TrainingRun& run, double work_s);

// The whole run: failed nodes replaced without delay; and without failures at all.
double expected_active_s(const TrainingRun& run, std::int64_t every);
double failure_free_s(const TrainingRun& run, std::int64_t every);
// The steps between checkpoints with which expected_active_s is least: those for which a cycle is least by
// step, and of what is near those the one that cuts the run into its most even parts.
std::int64_t best_interval(const TrainingRun& run);

// Of the run's time, how much it waits for a node (without elasticity): Erlang's loss formula.
double waiting_share(const TrainingRun& run);
// The whole run with those waits.
double expected_run_s(const TrainingRun& run, std::int64_t every);
// The number of spares with which the run takes the fewest node-seconds, spares counted.
int cheapest_spares(const TrainingRun& run);

// The probability that all of `places` are taken, where `load` arrivals come in a mean stay: Erlang's B.
double erlang_loss(int places, double load);

}  // namespace orrery::planner
