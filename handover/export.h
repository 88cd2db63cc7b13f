// Handing a plan over to the systems that people train with: the exact flags, files, environment and launch
// line.
//
// Keys follow Megatron-LM core 0.20.0, DeepSpeed 0.19.6, torchtitan v0.2.2 (the last with TOML) and Horovod
// 0.28, read in their sources. Whatever the target cannot express stands as a comment in the launch script,
// so that nothing is lost silently.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "program/plan.h"

namespace orrery::planner {

enum class ExportTarget {
  megatron,
  deepspeed,
  torchtitan,
  torchrun,
  nemo,
  torchtune,
  horovod,
  tensorflow,
  ray,
  chakra,
  simgrid,
  slurm,
  kubernetes
};

// What a plan becomes on Kubernetes: a PyTorchJob or an MPIJob of Kubeflow's training operators, a TrainJob
// of its Trainer.
enum class KubernetesJob { pytorch, train, mpi };
// "pytorchjob" "trainjob" "mpijob". Throws UserError.
KubernetesJob kubernetes_job_from_name(std::string_view name);

// "megatron, deepspeed, …"
std::string names_of_targets();
// Throws UserError on an unknown name, listing the known ones.
ExportTarget export_target_from_name(std::string_view name);

struct ExportedFile {
  std::string name;  // "launch.sh", "ds_config.json", …
  std::string content;
  bool binary = false;
};

struct ExportOptions {
  bool all_ranks = false;  // chakra: every rank's trace also above 64 ranks
  KubernetesJob job = KubernetesJob::pytorch;
};

// The first file is what a person runs. Throws UserError when the workload is no transformer and the target
// needs one (Megatron, torchtitan), and when chakra or simgrid cannot express the plan or its cluster.
// chakra: execution traces of MLCommons, one a rank (above 64 ranks of one rank of each class of like ranks,
// sim/scenario/folding.h), and the communicator groups. simgrid: the plan's cluster as a platform file.
// slurm, kubernetes: what starts the plan on every node, beside the files of its runtime's own framework.
std::vector<ExportedFile> export_plan(const Plan& plan, ExportTarget target,
                                      const ExportOptions& options = {});

// What the files say that the target does otherwise than the plan, or leaves to somebody: their lines that
// begin with "# NOTE: ", each once.
std::vector<std::string> notes_in(const std::vector<ExportedFile>& files);

}  // namespace orrery::planner
