// What Slurm and Kubernetes start on every node: the plan as the files of the framework that it is for.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "handover/export.h"

namespace orrery::planner {

struct Trainer {
  std::vector<ExportedFile> files;  // launch.sh first
  std::vector<std::string> notes;   // beyond those that stand in launch.sh
  // launch.sh runs in the folder of its files (torchtitan); else in the framework's own (Megatron-LM).
  bool runs_beside_its_files = false;
};

// Of the plan's runtime profile. Throws UserError where `target` cannot start that framework, or where nodes
// have not as many ranks each.
Trainer trainer_for(const Plan& plan, std::string_view target);
// Of lower-case letters, digits and hyphens, begun by a letter: what a job may be called.
std::string job_name(const Plan& plan);
// The resource that stands for the devices, "nvidia.com/gpu"; empty where they are no GPUs that are counted.
std::string gpu_resource(const Plan& plan);

}  // namespace orrery::planner
