// Kubernetes: a job of one of Kubeflow's operators, a pod a node, each of which starts the plan's launch.sh:
// PyTorchJob (kubeflow.org/v1, training operator 1.9), TrainJob (trainer.kubeflow.org/v1alpha1, Trainer 2.2),
// MPIJob (kubeflow.org/v2beta1, MPI operator 0.6).
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

// Pods of each kind of job are found by this label.
const char* label_of(KubernetesJob job) {
  return job == KubernetesJob::train ? "jobset.sigs.k8s.io/jobset-name" : "training.kubeflow.org/job-name";
}

// What a node's pod runs. The operators give MASTER_ADDR and MASTER_PORT, or PET_… (which torchrun would
// read, too); an MPIJob's workers have names. launch.sh takes address and port in one; the arguments are
// split at blanks, as submit.sh joined them.
std::string command_of(const Plan& plan, const Trainer& trainer, KubernetesJob job) {
  const std::string name = job_name(plan);
  std::string command = "export JOB_ID=" + name + "; ";
  if (nodes_used(plan) > 1 && job == KubernetesJob::pytorch)
    command += "export MASTER_ADDR=$MASTER_ADDR:$MASTER_PORT; ";
  if (job == KubernetesJob::train) {
    if (nodes_used(plan) > 1) command += "export MASTER_ADDR=$PET_MASTER_ADDR:$PET_MASTER_PORT; ";
    command += "unset ${!PET_@}; ";
  }
  if (nodes_used(plan) > 1 && job == KubernetesJob::mpi)
    command += "export MASTER_ADDR=" + name + "-worker-0." + name + ":29400; ";
  if (trainer.runs_beside_its_files) command += "cd /plan; ";
  return command + "exec bash /plan/launch.sh $TRAIN_ARGS";
}

Json arguments_of(const Plan& plan) {
  return Json::array(
      {{{"name", "TRAIN_ARGS"},
        {"valueFrom", {{"configMapKeyRef", {{"name", job_name(plan) + "-plan"}, {"key", "args"}}}}}}});
}

Json mounts() {
  return Json::array(
      {{{"name", "plan"}, {"mountPath", "/plan"}}, {{"name", "shared-memory"}, {"mountPath", "/dev/shm"}}});
}

// Volumes, and that pods go into one zone if there is room.
Json around(const Plan& plan, KubernetesJob job) {
  const std::string name = job_name(plan);
  Json spec = {{"volumes", Json::array({{{"name", "plan"}, {"configMap", {{"name", name + "-plan"}}}},
                                        {{"name", "shared-memory"}, {"emptyDir", {{"medium", "Memory"}}}}})}};
  if (nodes_used(plan) > 1) {
    const Json near = {{"labelSelector", {{"matchLabels", {{label_of(job), name}}}}},
                       {"topologyKey", "topology.kubernetes.io/zone"}};
    spec["affinity"] = {{"podAffinity",
                         {{"preferredDuringSchedulingIgnoredDuringExecution",
                           Json::array({{{"weight", 100}, {"podAffinityTerm", near}}})}}}};
  }
  return spec;
}

// RDMA registers memory, which a container may not lock by itself.
void let_lock_memory(const Plan& plan, Json* container) {
  if (over_rdma(plan))
    (*container)["securityContext"] = {{"capabilities", {{"add", Json::array({"IPC_LOCK"})}}}};
}

Json limits(const Plan& plan, const std::string& gpus) {
  return {{"limits", {{gpus, std::to_string(ranks_per_node(plan))}}}};
}

Json pod(const Plan& plan, const Trainer& trainer, const std::string& gpus, KubernetesJob job) {
  Json container = {
      {"name", job == KubernetesJob::mpi ? "mpi" : "pytorch"},  // the latter is what its operator looks for
      {"image", kImage},
      {"command", Json::array({"bash", "-c", command_of(plan, trainer, job)})},
      {"env", arguments_of(plan)},
      {"resources", limits(plan, gpus)},
      {"volumeMounts", mounts()}};
  if (job == KubernetesJob::mpi) container["command"] = Json::array({"/usr/sbin/sshd", "-De"});
  let_lock_memory(plan, &container);
  Json spec = {{"containers", Json::array({container})}};
  spec.update(around(plan, job));
  return {{"spec", spec}};
}

Json pytorch_job(const Plan& plan, const Trainer& trainer, const std::string& gpus) {
  const int nodes = nodes_used(plan);
  const auto replicas = [&](int count) {
    return Json{{"replicas", count},
                {"restartPolicy", "OnFailure"},
                {"template", pod(plan, trainer, gpus, KubernetesJob::pytorch)}};
  };
  Json specs = {{"Master", replicas(1)}};
  if (nodes > 1) specs["Worker"] = replicas(nodes - 1);
  return {{"apiVersion", "kubeflow.org/v1"},
          {"kind", "PyTorchJob"},
          {"metadata", {{"name", job_name(plan)}}},
          {"spec",
           {{"nprocPerNode", std::to_string(ranks_per_node(plan))},
            // All pods or none: a part of them would hold devices and wait.
            {"runPolicy", {{"schedulingPolicy", {{"minAvailable", nodes}}}}},
            {"pytorchReplicaSpecs", specs}}}};
}

// The runtime torch-distributed comes with Kubeflow's Trainer; what it does not say is patched in.
Json train_job(const Plan& plan, const Trainer& trainer, const std::string& gpus) {
  Json container = {{"name", "node"}, {"volumeMounts", mounts()}};
  let_lock_memory(plan, &container);
  Json spec = around(plan, KubernetesJob::train);
  spec["containers"] = Json::array({container});
  const Json node = {{"name", "node"}, {"template", {{"spec", {{"template", {{"spec", spec}}}}}}}};
  return {{"apiVersion", "trainer.kubeflow.org/v1alpha1"},
          {"kind", "TrainJob"},
          {"metadata", {{"name", job_name(plan)}}},
          {"spec",
           {{"runtimeRef", {{"name", "torch-distributed"}, {"kind", "ClusterTrainingRuntime"}}},
            {"trainer",
             {{"image", kImage},
              {"command", Json::array({"bash", "-c", command_of(plan, trainer, KubernetesJob::train)})},
              {"env", arguments_of(plan)},
              {"numNodes", nodes_used(plan)},
              {"numProcPerNode", ranks_per_node(plan)},
              {"resourcesPerNode", limits(plan, gpus)}}},
            {"runtimePatches",
             Json::array({{{"manager", "orrery.export/plan"},
                           {"trainingRuntimeSpec",
                            {{"template", {{"spec", {{"replicatedJobs", Json::array({node})}}}}}}}}})}}}};
}

// One mpirun starts launch.sh once a node.
Json mpi_job(const Plan& plan, const Trainer& trainer, const std::string& gpus) {
  const int nodes = nodes_used(plan);
  Json launcher = {{"name", "mpi-launcher"},
                   {"image", kImage},
                   {"command", Json::array({"mpirun", "--allow-run-as-root", "-np", std::to_string(nodes),
                                            "--map-by", "ppr:1:node", "--bind-to", "none", "-x", "TRAIN_ARGS",
                                            "bash", "-c", command_of(plan, trainer, KubernetesJob::mpi)})},
                   {"env", arguments_of(plan)}};
  return {
      {"apiVersion", "kubeflow.org/v2beta1"},
      {"kind", "MPIJob"},
      {"metadata", {{"name", job_name(plan)}}},
      {"spec",
       {{"slotsPerWorker", 1},
        {"runPolicy", {{"cleanPodPolicy", "Running"}, {"schedulingPolicy", {{"minAvailable", nodes + 1}}}}},
        {"mpiReplicaSpecs",
         {{"Launcher",
           {{"replicas", 1},
            {"restartPolicy", "OnFailure"},
            {"template", {{"spec", {{"containers", Json::array({launcher})}}}}}}},
          {"Worker", {{"replicas", nodes}, {"template", pod(plan, trainer, gpus, KubernetesJob::mpi)}}}}}}}};
}

const char* operator_of(KubernetesJob job) {
  return job == KubernetesJob::pytorch ? "Kubeflow's training operator 1.9"
         : job == KubernetesJob::train ? "Kubeflow's Trainer 2.2"
                                       : "Kubeflow's MPI operator 0.6";
}

}  // namespace

KubernetesJob kubernetes_job_from_name(std::string_view name) {
  if (name == "pytorchjob") return KubernetesJob::pytorch;
  if (name == "trainjob") return KubernetesJob::train;
  if (name == "mpijob") return KubernetesJob::mpi;
  throw UserError(fmt::format("`job` {}: unknown", name), "expected pytorchjob, trainjob or mpijob");
}

std::vector<ExportedFile> export_kubernetes(const Plan& plan, KubernetesJob kind) {
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
        "torchrun numbers nodes by their pods' names: ranks that the plan puts side by side on nodes may be "
        "farther apart; pods are asked into one zone, set topologyKey to your label of a rack or switch");
  if (over_rdma(plan))
    trainer.notes.emplace_back(
        "the plan's network is RDMA: add your cluster's resource for its ports (e.g. rdma/…) to the limits, "
        "without it NCCL goes over the pods' own, slower network");

  if (kind == KubernetesJob::train && nodes > 1)
    trainer.notes.emplace_back(
        "a TrainJob does not say that all pods start or none: the runtime does (podGroupPolicy), and "
        "torch-distributed as it "
        "comes does not");
  if (kind == KubernetesJob::mpi)
    trainer.notes.emplace_back("the image holds Open MPI and a server of ssh, as the MPI operator's own do");
  const std::string name = job_name(plan);
  const Json job = kind == KubernetesJob::pytorch ? pytorch_job(plan, trainer, gpus)
                   : kind == KubernetesJob::train ? train_job(plan, trainer, gpus)
                                                  : mpi_job(plan, trainer, gpus);

  std::string script = script_head(plan, operator_of(kind), trainer.notes, ModelIs::built);
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
