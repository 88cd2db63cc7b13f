// Slurm (22.05 and later): a batch script that starts the plan's launch.sh once a node.
#include <fmt/format.h>

#include "handover/export_common.h"
#include "handover/trainer.h"

namespace orrery::planner {
namespace {

// sbatch reads #SBATCH lines only before the first command, `set`.
std::string directives(const Plan& plan) {
  const int nodes = nodes_used(plan);
  const Cluster& cluster = plan.job->cluster;
  std::string text = fmt::format("#SBATCH --job-name={}\n#SBATCH --nodes={}\n#SBATCH --ntasks-per-node=1\n",
                                 job_name(plan), nodes);
  if (!gpu_resource(plan).empty()) text += fmt::format("#SBATCH --gpus-per-node={}\n", ranks_per_node(plan));
  if (ranks_per_node(plan) == cluster.groups.front().node.devices) text += "#SBATCH --exclusive\n";
  if (nodes > 1 && cluster.fabric.nodes_per_leaf >= nodes)
    text += "#SBATCH --switches=1@60  # under one switch, or wherever there is room after an hour\n";
  return text + "#SBATCH --requeue\n#SBATCH --open-mode=append\n#SBATCH --output=%x-%j.log\n";
}

}  // namespace

std::vector<ExportedFile> export_slurm(const Plan& plan) {
  Trainer trainer = trainer_for(plan, "slurm");
  if (nodes_used(plan) > 1)
    trainer.notes.emplace_back(
        "torchrun numbers nodes by their hosts' names (n10 before n2), not by Slurm's order: ranks that the "
        "plan puts side by side on nodes may be farther apart");
  trainer.notes.emplace_back("a requeued job begins anew unless the arguments name checkpoints to load");

  // script_head's first line is the interpreter's.
  std::string script = script_head(plan, "Slurm", trainer.notes, ModelIs::built);
  script.insert(script.find('\n') + 1, directives(plan));
  script +=
      "# sbatch job.sbatch [ARGUMENT of launch.sh…], in this folder, which every node must see.\n"
      "plan=${PLAN:-$SLURM_SUBMIT_DIR}\n";
  script += trainer.runs_beside_its_files
                ? "cd \"$plan\"\n"
                : "cd \"${MEGATRON:?the folder of Megatron-LM, where pretrain_gpt.py is}\"\n";
  if (nodes_used(plan) > 1)
    script +=
        "first=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)\n"
        "# One port a job, so that two jobs may share a first node.\n"
        "export MASTER_ADDR=$first:$((20000 + SLURM_JOB_ID % 10000))\n"
        "export JOB_ID=$SLURM_JOB_ID-${SLURM_RESTART_COUNT:-0}\n";
  script +=
      "# One task a node, which torchrun divides: it gets all cores of the job there, bound to none.\n"
      "srun --ntasks-per-node=1 --cpus-per-task=\"$SLURM_CPUS_ON_NODE\" --cpu-bind=none --kill-on-bad-exit=1 "
      "\\\n  bash \"$plan/launch.sh\" \"$@\"\n";
  std::vector<ExportedFile> files = {{"job.sbatch", script}};
  files.insert(files.end(), trainer.files.begin(), trainer.files.end());
  return files;
}

}  // namespace orrery::planner
