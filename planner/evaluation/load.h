// Load balance: what each pipeline stage and each data-parallel replica of a simulated plan has to do.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner/evaluation/evaluation.h"

namespace orrery::planner {

struct StageLoad {
  int stage = 0;
  int layers = 0;             // all its chunks
  double compute_s = 0;       // of a step: a device computes, mean over the stage
  double memory_bytes = 0;    // of its fullest device
  double capacity_bytes = 0;  // of that device
};

// Neighbouring replicas that do the same.
struct ReplicaLoad {
  int first = 0;
  int count = 0;
  std::int64_t samples = 0;  // of a step, each
  double compute_s = 0;      // of a step: a device computes, mean over the replica
};

struct Load {
  std::vector<StageLoad> stages;
  std::vector<ReplicaLoad> replicas;
  // Standard deviations over all stages, over all replicas (of the population, not of a sample).
  double stage_compute_std_s = 0, stage_memory_std_bytes = 0, replica_compute_std_s = 0;
};

// The evaluation must have been simulated.
Load load_of(const Evaluation& evaluation);
// One sentence on what is uneven; empty where nothing is, by more than a thousandth of the mean.
std::string uneven_load(const Load& load);
// Of workers that do not wait for each other: one sentence where few of them do most of the work, else empty.
std::string few_workers(const Load& load);

}  // namespace orrery::planner
