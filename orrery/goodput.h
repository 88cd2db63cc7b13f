// A whole training run on devices that fail.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "planner/runs/checkpoint_cost.h"
#include "planner/runs/goodput_answer.h"
#include "program/plan.h"

namespace orrery {

// Counts of what is done to train, from 1 to 1e18; exactly one is given.
struct TrainingLength {
  std::optional<double> tokens, samples;
  std::optional<double> steps;  // whole
};

struct GoodputRequest {
  Plan plan;
  TrainingLength length;
  double mtbf_device_hours = 0;           // mean time between failures of one device that interrupt the job
  std::optional<double> mtbf_node_hours;  // of a node besides; none: nodes do not fail
  std::optional<double> checkpoint_bandwidth_bytes_per_s;  // of the storage; none: as the cluster states
  std::optional<double> checkpoint_s, read_s;  // to write and read one; none: its bytes over the bandwidth
  bool checkpoint_async = false;     // training stops only while devices copy their state to host memory
  std::optional<double> snapshot_s;  // that copy; none: by the cluster's PCIe rate
  std::optional<std::int64_t> checkpoint_every;  // steps; none: those that lose least
  double detect_s = 0, restart_s = 0;
  int spares = 0;
  std::optional<double> repair_hours;  // of a node; none: it is back or replaced at once
  bool elastic = false;                // without a spare go on with fewer data-parallel replicas
  int runs = 200;
  std::uint64_t seed = 1;
  int jobs = 0;  // processes that simulate an elastic run's plans; 0: one a processor
};

struct Goodput {
  std::shared_ptr<const Job> job;  // the plan's
  planner::CheckpointCost checkpoint;
  planner::GoodputQuestion question;
  planner::GoodputAnswer answer;
};

// The plan's step is simulated. Throws UserError where something that is needed is not given or does not go
// together, NoAnswer where the run does not end.
Goodput goodput(const GoodputRequest& request);

}  // namespace orrery
