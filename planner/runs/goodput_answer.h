// What a whole run takes and costs, and what it would with other choices.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planner/evaluation/interval.h"
#include "planner/runs/goodput_simulation.h"

namespace orrery::planner {

struct GoodputQuestion {
  TrainingRun run;
  std::int64_t every = 0;           // steps between checkpoints; 0: best_interval
  bool checkpoints_beside = false;  // CheckpointTimes::stall_s is no time of the storage
  int runs = 1;
  std::uint64_t seed = 1;
  double usd_per_s = 0;     // of the plan's nodes; 0: not stated
  double idle_power_w = 0;  // of them; with RunningPlan::energy_j; 0: not stated
  // Of the plan's step, and of the smaller plans' alike. No factors: no interval.
  StepDraws step_draws;
};

struct GoodputFigures {
  std::int64_t every = 0;
  int spares = 0;
  RunStatistics statistics;
  double closed_form_s = 0;  // expected_run_s
  double goodput = 0;        // productive time over mean time
  double closed_form_goodput = 0;
  std::optional<double> cost_usd;  // all nodes and spares, from the first to the last second
  // Steps as simulated, those done again too (what an interruption undid counts as steps throughout);
  // everybody idle the rest of the time.
  std::optional<double> energy_j;
};

struct Alternative {
  std::string key;     // "checkpoint_interval_halved" "storage_bandwidth_x2" "spares_3" "not_elastic"
  std::string change;  // for people
  GoodputFigures figures;
};

// In which kCovered of such runs lie, of what is not known of the step and of when devices fail together.
struct GoodputInterval {
  Range step_time_s, time_s, goodput;
  std::optional<Range> cost_usd, energy_j;
  RestsOn rests_on;
  std::string narrowed_by;  // what would narrow it most, for people
};

struct GoodputAnswer {
  GoodputFigures figures;
  std::optional<GoodputInterval> interval;  // none where a run whose steps take longer would not end
  std::vector<Alternative> alternatives;    // those that come to an end; none that is what was asked
};

// For the interval each draw of the step's time has a run of its own: its failures, and checkpoints as often
// as the nominal run has them. Throws NoAnswer where the closed form says that the run takes more than
// kHopeless times as long as without failures, and where simulate_runs does.
GoodputAnswer answer(const GoodputQuestion& question);
constexpr double kHopeless = 1000;

// The parts of a run's time with their names, what is lost first.
std::vector<std::pair<std::string, double>> lost_parts(const TimeSpent& spent);

}  // namespace orrery::planner
