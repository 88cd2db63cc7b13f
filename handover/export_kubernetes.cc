// Kubernetes: a PyTorchJob of Kubeflow's training operator (kubeflow.org/v1, 1.9), a pod a node, each of
// which starts the plan's launch.sh.
#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "handover/export_common.h"
#include "handover/trainer.h"

namespace orrery::planner {
namespace {

// What submit.sh puts the image's name in the place of.
constexpr const char* kImage = "ORRERY_IMAGE";

bool over_rdma(const Plan& plan) {
  const Transport transport = plan.job->cluster.fabric.transport;
  return nodes_used(plan) > 1 && (transport == Transport::infiniband || transport == Transport::roce);
}

Json pod(const Plan& plan, const Trainer& trainer, const std::string& gpus) {
  const std::string name = job_name(plan);
  // MASTER_ADDR and MASTER_PORT are the operator's; launch.sh takes both in one. The arguments are split at
  // blanks, as submit.sh joined them.
  std::string command = "export JOB_ID=" + name + "; ";
  if (nodes_used(plan) > 1) command += "export MASTER_ADDR=$MASTER_ADDR:$MASTER_PORT; ";
  if (trainer.runs_beside_its_files) command += "cd /plan; ";
  command += "exec bash /plan/launch.sh $TRAIN_ARGS";
  Json container = {
      {"name", "pytorch"},  // the one that the operator looks for
      {"image", kImage},
      {"command", Json::array({"bash", "-c", command})},
      {"env",
       Json::array({{{"name", "TRAIN_ARGS"},
                     {"valueFrom", {{"configMapKeyRef", {{"name", name + "-plan"}, {"key", "args"}}}}}}})},
      {"resources", {{"limits", {{gpus, std::to_string(ranks_per_node(plan))}}}}},
      {"volumeMounts", Json::array({{{"name", "plan"}, {"mountPath", "/plan"}},
                                    {{"name", "shared-memory"}, {"mountPath", "/dev/shm"}}})}};
  // RDMA registers memory, which a container may not lock by itself.
  if (over_rdma(plan))
    container["securityContext"] = {{"capabilities", {{"add", Json::array({"IPC_LOCK"})}}}};
  Json spec = {{"containers", Json::array({container})},
               {"volumes", Json::array({{{"name", "plan"}, {"configMap", {{"name", name + "-plan"}}}},
                                        {{"name", "shared-memory"}, {"emptyDir", {{"medium", "Memory"}}}}})}};
  if (nodes_used(plan) > 1) {
    const Json near = {{"labelSelector", {{"matchLabels", {{"training.kubeflow.org/job-name", name}}}}},
                       {"topologyKey", "topology.kubernetes.io/zone"}};
    spec["affinity"] = {{"podAffinity",
                         {{"preferredDuringSchedulingIgnoredDuringExecution",
                           Json::array({{{"weight", 100}, {"podAffinityTerm", near}}})}}}};
  }
  return {{"spec", spec}};
}

}  // namespace

std::vector<ExportedFile> export_kubernetes(const Plan& plan) {
  const std::string gpus = gpu_resource(plan);
  if (gpus.empty())
    throw UserError(fmt::format("{} cannot be exported to kubernetes: its devices are no resource of "
                                "Kubernetes' that is known here",
                                plan.job->cluster.name),
                    "expected GPUs of NVIDIA's or AMD's");
  Trainer trainer = trainer_for(plan, "kubernetes");
  const int nodes = nodes_used(plan);
  if (nodes > 1)
    trainer.notes.emplace_back(
        "torchrun numbers nodes as they meet: ranks that the plan puts side by side on nodes may be farther "
        "apart; pods are asked into one zone, set topologyKey to your label of a rack or switch");
  if (over_rdma(plan))
    trainer.notes.emplace_back(
        "the plan's network is RDMA: add your cluster's resource for its ports (e.g. rdma/…) to the limits, "
        "without it NCCL goes over the pods' own, slower network");

  const std::string name = job_name(plan);
  const auto replicas = [&](int count) {
    return Json{{"replicas", count}, {"restartPolicy", "OnFailure"}, {"template", pod(plan, trainer, gpus)}};
  };
  Json specs = {{"Master", replicas(1)}};
  if (nodes > 1) specs["Worker"] = replicas(nodes - 1);
  const Json job = {{"apiVersion", "kubeflow.org/v1"},
                    {"kind", "PyTorchJob"},
                    {"metadata", {{"name", name}}},
                    {"spec",
                     {{"nprocPerNode", std::to_string(ranks_per_node(plan))},
                      // All pods or none: a part of them would hold devices and wait.
                      {"runPolicy", {{"schedulingPolicy", {{"minAvailable", nodes}}}}},
                      {"pytorchReplicaSpecs", specs}}}};

  std::string script = script_head(plan, "Kubeflow's training operator 1.9", trainer.notes);
  script += trainer.runs_beside_its_files
                ? "# IMAGE=… ./submit.sh [ARGUMENT of launch.sh…]: an image with torchtitan\n"
                : "# IMAGE=… ./submit.sh [ARGUMENT of launch.sh…]: an image whose working folder is "
                  "Megatron-LM's\n";
  script +=
      ": \"${IMAGE:?the container image to train with}\"\n"
      "cd \"$(dirname \"$0\")\"\n"
      "for word in \"$@\"; do\n"
      "  case $word in *[[:space:]]*) echo \"submit.sh: '$word': expected an argument without blanks\" >&2; "
      "exit 2 ;; esac\ndone\n";
  script += "kubectl create configmap " + name + "-plan --from-literal=args=\"$*\"";
  for (const ExportedFile& file : trainer.files) script += " --from-file=" + file.name;
  script += " \\\n  --dry-run=client -o json | kubectl apply -f -\n";
  script += fmt::format("sed \"s|{}|$IMAGE|\" job.json | kubectl apply -f -\n", kImage);

  std::vector<ExportedFile> files = {{"submit.sh", script}, {"job.json", job.dump(2) + "\n"}};
  files.insert(files.end(), trainer.files.begin(), trainer.files.end());
  return files;
}

}  // namespace orrery::planner
