// A plan's predicted figures: memory, closed-form time, simulated time.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "planner/closed_form/figures.h"
#include "planner/uncertainty/odds.h"
#include "planner/uncertainty/outlook.h"
#include "program/plan.h"
#include "sim/simulator.h"

namespace orrery::planner {

// In which 90% of what happens lies.
struct Interval {
  Range step_time_s, memory_bytes;
  double fit_probability = 0;  // of the fullest device
  RestsOn rests_on;
  std::string narrowed_by;  // what would narrow it most, for people
};

struct Evaluation {
  Plan plan;
  Memory memory;
  double estimate_s = 0;
  std::optional<sim::Simulation> simulation;
  std::optional<Interval> interval;  // interval.h
  std::optional<Odds> odds;          // among the plans that a search compared
  double step_time_s() const { return simulation ? simulation->step_time_s : estimate_s; }
};

// Memory and closed form of a plan; not simulated. Throws UserError where check_plan does.
Evaluation evaluate(Plan plan);

// Rates that follow from the step time.
struct Throughput {
  double model_flops = 0;  // of a step, as model_flops(plan) counts them
  double samples_per_s = 0;
  double tokens_per_s = 0;  // 0 for models without sequences
  double model_tflops_per_gpu = 0;
  double mfu = 0;  // of the dense datasheet peak at the training precision, summed over the devices
  double hfu = 0;  // the same with recomputation counted
};
Throughput throughput(const Evaluation& evaluation);

// The parts of a breakdown with their names, in the order of `breakdown_s`.
std::vector<std::pair<std::string, double>> parts_of(const Breakdown& breakdown);
// Of the step, that the host takes to launch its kernels; 0 where the device is not kept waiting for it.
double host_share(const Evaluation& evaluation);
// What bounds the plan, for people: "compute", or the largest loss with its share, "bubble 21%", or "host
// 95%".
std::string bound_by(const Evaluation& evaluation);
// What sequences of unequal length cost it, for people; empty where they are of one length.
std::string unequal_sequences(const Plan& plan);
// What distinguishes a plan, for people: "TP 8 x PP 4 x DP 32, micro-batch 1, interleaved 3, full
// recomputation".
std::string describe(const Plan& plan);

}  // namespace orrery::planner
