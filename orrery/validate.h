// Predicted beside measured: a prediction, a measurement by the executor, and their join.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "exec/launch/launcher.h"
#include "planner/evaluation/evaluation.h"
#include "planner/evaluation/validation.h"
#include "program/plan.h"
#include "program/timeline.h"

namespace orrery {

// Ranks on the hosts that the cluster's file names, in the order of its devices; on this machine where it
// names none, or `localhost` alone. Throws UserError where it names hosts for some nodes only.
Placement placement_of(const Cluster& cluster, int ranks);

bool is_for_gpus(const Plan& plan);
// Whether ranks train on the processors of this host, as `backend` says and mpirun places them.
bool on_these_processors(const Plan& plan, const Placement& placement, const std::string& backend);

// Throws NoAnswer where they need more memory than there is, as the executor keeps it: `available_bytes`.
// Where ranks run elsewhere or on GPUs, or where it is not known how they share it, nothing is said.
void check_memory(const Plan& plan, const Placement& placement, const std::string& backend,
                  std::optional<double> available_bytes);

// What to say before a plan for GPUs is trained on them, and about how long a step may take where it is more
// than a minute; empty where there is nothing to say.
std::string surprise_on_processors(const Plan& plan, const Placement& placement, const std::string& backend);

// With a simulation that a measurement can be joined to: of every rank up to 64, beyond that of one of each
// class of symmetric ranks.
planner::Evaluation predict(const Plan& plan);

// What an executor's run of a plan says.
struct Measurement {
  double step_median_s = 0, step_least_s = 0, step_most_s = 0;
  double memory_bytes = 0;   // of the fullest rank
  double fullest_share = 0;  // of the ranks that share experts, by the mean; 0: none travelled
  std::optional<planner::MachinePace> pace;
  Timeline timeline;
};

struct MeasureRequest {
  std::string plan_file;  // the executor reads it
  int ranks = 1;
  int steps = 10;
  std::string backend = "auto";  // "auto" "mpi" "nccl" "cuda-mpi"
  std::string data;              // text to train on; empty: the executor's own
  bool pace = false;  // all ranks are on this machine, as when it was calibrated: measure its pace, too
  MpiLibrary mpi = MpiLibrary::openmpi;
  Placement placement;
  bool quiet = false;  // what the executor says on stderr is kept
};
struct Measured {
  int exit_code = 0;  // of the executor, which has said why on stderr where it is not 0
  Measurement measurement;
  std::string said;  // where it was quiet
};
// Runs the executor beside this process, its stdout discarded.
Measured measure(const MeasureRequest& request);
// Under a launcher (mpirun, srun) every rank but the first joins the measurement of the first so: it becomes
// the executor and does not return.
int join_measurement(const MeasureRequest& request);

// `predicted` must have been simulated (predict).
planner::Validation validate(const planner::Evaluation& predicted, const Measurement& measured);

}  // namespace orrery
