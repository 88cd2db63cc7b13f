// Slurm and Kubernetes: what they start is the plan as its own framework gets it, on as many nodes.
#include <catch2/catch.hpp>
#include <fstream>
#include <map>
#include <memory>
#include <regex>

#include "base/error.h"
#include "base/json.h"
#include "handover/export.h"
#include "tests/support/jobs.h"

using namespace orrery;
using namespace orrery::planner;

namespace {

Plan plan_for(const std::string& runtime, int devices = 32) {
  Plan plan{test::make_job("llama3-8b", "dgx-h100", devices, 128, 2048, runtime), {}};
  plan.choices.tp = 2;
  plan.choices.dp = devices / 2;
  plan.choices.sequence_parallel = true;
  plan.choices.zero = 1;
  return plan;
}

std::map<std::string, std::string> files_of(const Plan& plan, ExportTarget target) {
  std::map<std::string, std::string> files;
  for (const ExportedFile& file : export_plan(plan, target)) files[file.name] = file.content;
  return files;
}

// Path and type of every value, as tests/data/export/pytorchjob_keys.txt writes them.
void walk(const Json& value, const std::string& path, std::map<std::string, std::string>* found) {
  (*found)[path] = value.type_name();
  if (value.is_object())
    for (const auto& [key, below] : value.items()) walk(below, path.empty() ? key : path + "/" + key, found);
  if (value.is_array())
    for (const Json& below : value) walk(below, path + "/*", found);
}

std::map<std::string, std::string> keys_of_file(const std::string& file = "pytorchjob_keys.txt") {
  std::ifstream in(ORRERY_TEST_DATA "/export/" + file);
  REQUIRE(in);
  std::map<std::string, std::string> keys;
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    const std::size_t blank = line.find(' ');
    keys[line.substr(0, blank)] = line.substr(blank + 1, line.find(' ', blank + 1) - blank - 1);
  }
  return keys;
}

}  // namespace

TEST_CASE("Slurm and Kubernetes get the very files of the plan's own framework") {
  const std::map<std::string, ExportTarget> own = {{"megatron-core", ExportTarget::megatron},
                                                   {"torchtitan", ExportTarget::torchtitan}};
  for (const auto& [runtime, target] : own) {
    const Plan plan = plan_for(runtime);
    for (const ExportTarget start : {ExportTarget::slurm, ExportTarget::kubernetes}) {
      const auto started = files_of(plan, start);
      for (const auto& [name, content] : files_of(plan, target)) {
        INFO(runtime << " " << name);
        REQUIRE(started.count(name) == 1);
        CHECK(started.at(name) == content);
      }
    }
  }
  for (const ExportTarget start : {ExportTarget::slurm, ExportTarget::kubernetes})
    CHECK_THROWS_WITH(export_plan(plan_for("deepspeed"), start), Catch::Contains("deepspeed"));
}

TEST_CASE("a plan of another framework's times says so where Slurm starts Megatron-LM") {
  CHECK(files_of(plan_for("typical"), ExportTarget::slurm)
            .at("job.sbatch")
            .find("# NOTE: the plan's times are those of runtime typical") != std::string::npos);
  CHECK(files_of(plan_for("megatron-core"), ExportTarget::slurm).at("job.sbatch").find("plan's times") ==
        std::string::npos);
}

TEST_CASE("Slurm's directives stand before its first command and ask for the plan's nodes") {
  const std::string script = files_of(plan_for("megatron-core"), ExportTarget::slurm).at("job.sbatch");
  const std::size_t command = script.find("\nset ");
  REQUIRE(command != std::string::npos);
  CHECK(script.rfind("#SBATCH") < command);
  for (const char* line : {"#SBATCH --nodes=4\n", "#SBATCH --ntasks-per-node=1\n",
                           "#SBATCH --gpus-per-node=8\n", "#SBATCH --requeue\n", "#SBATCH --exclusive\n"})
    CHECK(script.find(line) < command);
  CHECK(script.find("MASTER_ADDR=") != std::string::npos);
  const std::string alone = files_of(plan_for("megatron-core", 8), ExportTarget::slurm).at("job.sbatch");
  CHECK(alone.find("#SBATCH --nodes=1\n") != std::string::npos);
  CHECK(alone.find("MASTER_ADDR=") == std::string::npos);
}

TEST_CASE("every key of a PyTorchJob is one that its schema has, of its type") {
  const auto known = keys_of_file();
  for (const std::string runtime : {"megatron-core", "torchtitan"})
    for (const int devices : {8, 32}) {
      const auto files = files_of(plan_for(runtime, devices), ExportTarget::kubernetes);
      const Json job = parse_json(files.at("job.json"), "job.json");
      std::map<std::string, std::string> found;
      walk(job, "", &found);
      found.erase("");
      CHECK(found.size() > 30);
      for (const auto& [path, type] : found) {
        // A pod's is the same for both; a limit's name is the device's.
        std::string key = std::regex_replace(path, std::regex("/(Master|Worker)/"), "/REPLICA/");
        key = std::regex_replace(key, std::regex("/(Master|Worker)$"), "/REPLICA");
        key = std::regex_replace(key, std::regex("limits/.*"), "limits/RESOURCE");
        key = std::regex_replace(key, std::regex("matchLabels/.*"), "matchLabels/LABEL");
        INFO(path);
        REQUIRE(known.count(key) == 1);
        CHECK(known.at(key) == type);
      }
      const Json& replicas = job["spec"]["pytorchReplicaSpecs"];
      CHECK(replicas.contains("Worker") == (devices > 8));
      const int workers = devices > 8 ? replicas["Worker"]["replicas"].get<int>() : 0;
      CHECK((1 + workers) * std::stoi(job["spec"]["nprocPerNode"].get<std::string>()) == devices);
      CHECK(job["spec"]["runPolicy"]["schedulingPolicy"]["minAvailable"] == 1 + workers);
      const std::string& script = files.at("submit.sh");
      CHECK(script.find("--from-file=launch.sh") != std::string::npos);
      CHECK((script.find("--from-file=train.toml") != std::string::npos) == (runtime == "torchtitan"));
    }
}

TEST_CASE("every key of a TrainJob and of an MPIJob is one that its schema has, of its type") {
  for (const auto& [kind, keys] : {std::pair{KubernetesJob::train, "trainjob_keys.txt"},
                                   std::pair{KubernetesJob::mpi, "mpijob_keys.txt"}}) {
    const auto known = keys_of_file(keys);
    for (const std::string runtime : {"megatron-core", "torchtitan"})
      for (const int devices : {8, 32}) {
        ExportOptions options;
        options.job = kind;
        std::string text, script;
        for (const ExportedFile& file :
             export_plan(plan_for(runtime, devices), ExportTarget::kubernetes, options)) {
          if (file.name == "job.json") text = file.content;
          if (file.name == "submit.sh") script = file.content;
        }
        const Json job = parse_json(text, "job.json");
        std::map<std::string, std::string> found;
        walk(job, "", &found);
        found.erase("");
        CHECK(found.size() > 25);
        for (const auto& [path, type] : found) {
          std::string key = std::regex_replace(path, std::regex("limits/.*"), "limits/RESOURCE");
          key = std::regex_replace(key, std::regex("matchLabels/.*"), "matchLabels/LABEL");
          INFO(keys << " " << path);
          REQUIRE(known.count(key) == 1);
          CHECK(known.at(key) == type);
        }
        const int nodes = devices / 8;
        if (kind == KubernetesJob::train) {
          CHECK(job["spec"]["trainer"]["numNodes"] == nodes);
          CHECK(job["spec"]["trainer"]["numProcPerNode"] == 8);
        } else {
          CHECK(job["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"] == nodes);
        }
        CHECK(script.find("kubectl apply") != std::string::npos);
      }
  }
  ExportOptions options;
  options.job = KubernetesJob::mpi;
  CHECK_THROWS_WITH(export_plan(plan_for("torchtitan"), ExportTarget::slurm, options),
                    Catch::Contains("`job`"));
}

TEST_CASE("Ray gets a worker a node with the plan's devices, and the files of its framework") {
  const auto files = files_of(plan_for("torchtitan"), ExportTarget::ray);
  const std::string& job = files.at("job.py");
  CHECK(job.find("num_workers=4, use_gpu=True, resources_per_worker={\"GPU\": 8}") != std::string::npos);
  CHECK(job.find("STRICT_SPREAD") != std::string::npos);
  CHECK(files.count("train.toml") == 1);
  CHECK(files_of(plan_for("megatron-core", 8), ExportTarget::ray).at("job.py").find("PACK") !=
        std::string::npos);
}

TEST_CASE("TensorFlow gets every node's TF_CONFIG, by workers or by parameter servers") {
  Plan plan = plan_for("typical", 16);
  CHECK_THROWS_WITH(export_plan(plan, ExportTarget::tensorflow), Catch::Contains("tensor parallelism"));
  plan.choices.tp = 1;
  plan.choices.dp = 16;
  plan.choices.sequence_parallel = false;
  const auto mirrored = files_of(plan, ExportTarget::tensorflow);
  CHECK(mirrored.at("launch.sh").find("TF_CONFIG") != std::string::npos);
  CHECK(mirrored.at("strategy.py").find("MultiWorkerMirroredStrategy") != std::string::npos);
  plan.choices.sync = Sync::async_parameter_server;
  plan.choices.servers = 2;
  plan.choices.zero = 0;
  const auto served = files_of(plan, ExportTarget::tensorflow);
  CHECK(served.at("strategy.py").find("ParameterServerStrategy") != std::string::npos);
  CHECK(served.at("launch.sh").find("start ps") != std::string::npos);
}

TEST_CASE("Kubernetes is refused processors, and names of jobs are names of DNS") {
  Plan plan = plan_for("megatron-core");
  const auto job = std::make_shared<Job>(*plan.job);
  plan.job = job;
  for (const char* name :
       {"Llama 3.1 / 8B", "7b", "--", "a-very-long-name-of-a-model-that-nobody-has-trained-yet"}) {
    job->workload.name = name;
    const Json made = parse_json(files_of(plan, ExportTarget::kubernetes).at("job.json"), "job.json");
    const auto given = made["metadata"]["name"].get<std::string>();
    INFO(given);
    CHECK(std::regex_match(given, std::regex("[a-z]([-a-z0-9]*[a-z0-9])?")));
    CHECK(given.size() < 50);
  }
  job->cluster.communication.library = CommunicationLibrary::mpi;
  CHECK_THROWS_WITH(export_plan(plan, ExportTarget::kubernetes), Catch::Contains("no resource"));
  CHECK(files_of(plan, ExportTarget::slurm).at("job.sbatch").find("--gpus") == std::string::npos);
}

TEST_CASE("nodes of several kinds are handed over in the plan's order, with as many devices on each") {
  Plan plan = plan_for("megatron-core", 16);
  const auto job = std::make_shared<Job>(*plan.job);
  NodeGroup& first = job->cluster.groups.front();
  first.count = 1;
  first.node.name = "fast";
  job->cluster.groups.push_back(first);
  job->cluster.groups.back().node.name = "slow";
  plan.job = job;
  for (const ExportTarget target : {ExportTarget::megatron, ExportTarget::deepspeed, ExportTarget::slurm}) {
    const ExportedFile script = export_plan(plan, target).front();
    CHECK_THAT(script.content,
               Catch::Contains("# NOTE: the plan lays its ranks over 1 node of fast, then 1 node of slow"));
  }
  job->cluster.groups.back().node.devices = 4;
  for (const ExportTarget target :
       {ExportTarget::megatron, ExportTarget::nemo, ExportTarget::torchtitan, ExportTarget::torchrun,
        ExportTarget::deepspeed, ExportTarget::horovod, ExportTarget::slurm})
    CHECK_THROWS_WITH(export_plan(plan, target), Catch::Contains("its nodes have 8 and 4 devices"));
  CHECK_NOTHROW(export_plan(plan, ExportTarget::simgrid));
}
