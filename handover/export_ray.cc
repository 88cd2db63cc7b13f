// Ray Train (2.9 and later): a worker a node, each of which starts the plan's launch.sh.
#include <fmt/format.h>

#include "base/error.h"
#include "handover/export_common.h"
#include "handover/trainer.h"

namespace orrery::planner {

std::vector<ExportedFile> export_ray(const Plan& plan) {
  if (gpu_resource(plan).empty())
    throw UserError(fmt::format("{} cannot be exported to ray: its devices are no GPUs that Ray counts",
                                plan.job->cluster.name),
                    "expected GPUs of NVIDIA's or AMD's");
  Trainer trainer = trainer_for(plan, "ray");
  if (nodes_used(plan) > 1)
    trainer.notes.emplace_back(
        "torchrun numbers nodes by their hosts' names: ranks that the plan puts side by side on nodes may be "
        "farther apart");
  trainer.notes.emplace_back(
      "Ray restarts the whole job up to three times; it begins anew unless the arguments name checkpoints");
  std::string job = fmt::format(
      "# {} on {}: written by orrery export, for Ray Train. `python job.py [ARGUMENT of launch.sh...]`\n"
      "import os\nimport subprocess\nimport sys\n\n"
      "import ray\n"
      "from ray.train import FailureConfig, RunConfig, ScalingConfig\n"
      "from ray.train.torch import TorchConfig, TorchTrainer\n\n\n"
      "def start(config):\n"
      "    \"\"\"Runs on every node. Ray has told all of them the first one's address; its port is taken, "
      "the next is "
      "not.\"\"\"\n"
      "    environment = dict(os.environ, JOB_ID=config[\"job\"])\n"
      "    port = int(os.environ[\"MASTER_PORT\"]) + 1\n"
      "    environment[\"MASTER_ADDR\"] = f\"{{os.environ['MASTER_ADDR']}}:{{port}}\"\n"
      "    for name in (\"MASTER_PORT\", \"RANK\", \"LOCAL_RANK\", \"WORLD_SIZE\", \"LOCAL_WORLD_SIZE\", "
      "\"NODE_RANK\"):\n"
      "        environment.pop(name, None)  # torchrun's own\n"
      "    plan = os.getcwd()  # the working folder that Ray has brought here\n"
      "    subprocess.run([\"bash\", f\"{{plan}}/launch.sh\", *config[\"arguments\"]], check=True, "
      "env=environment,\n"
      "                   cwd={})\n\n\n",
      plan.job->workload.name, plan.job->cluster.name,
      trainer.runs_beside_its_files ? "plan" : "os.environ[\"MEGATRON\"]");
  job += fmt::format(
      "if __name__ == \"__main__\":\n"
      "    ray.init(runtime_env={{\"working_dir\": os.path.dirname(os.path.abspath(__file__)){}}})\n"
      "    TorchTrainer(\n"
      "        start,\n"
      "        train_loop_config={{\"job\": \"{}\", \"arguments\": sys.argv[1:]}},\n"
      "        torch_config=TorchConfig(backend=\"gloo\"),  # Ray's own group; the plan's is torchrun's\n"
      "        scaling_config=ScalingConfig(num_workers={}, use_gpu=True, resources_per_worker={{\"GPU\": "
      "{}}},\n"
      "                                     placement_strategy=\"{}\"),\n"
      "        run_config=RunConfig(name=\"{}\", failure_config=FailureConfig(max_failures=3)),\n"
      "    ).fit()\n",
      trainer.runs_beside_its_files ? "" : ", \"env_vars\": {\"MEGATRON\": os.environ[\"MEGATRON\"]}",
      job_name(plan), nodes_used(plan), ranks_per_node(plan), nodes_used(plan) > 1 ? "STRICT_SPREAD" : "PACK",
      job_name(plan));
  std::string script = script_head(plan, "Ray Train 2.9", trainer.notes, ModelIs::built);
  if (!trainer.runs_beside_its_files)
    script += ": \"${MEGATRON:?the folder of Megatron-LM on every node, where pretrain_gpt.py is}\"\n";
  script += "cd \"$(dirname \"$0\")\"\npython3 job.py \"$@\"\n";
  std::vector<ExportedFile> files = {{"submit.sh", script}, {"job.py", job}};
  files.insert(files.end(), trainer.files.begin(), trainer.files.end());
  return files;
}

}  // namespace orrery::planner
