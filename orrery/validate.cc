#include "orrery/validate.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/json.h"
#include "planner/runs/on_processors.h"
#include "proto/timeline.pb.h"
#include "sim/simulator.h"
#include "topologies/readers/discover.h"

namespace orrery {
namespace {

constexpr int kUnfoldedRanks = 64;  // up to so many, every rank is simulated and compared
constexpr double kLongStepS = 60;   // nobody expects it of a plan for GPUs
constexpr std::uint64_t kMostTimelineBytes = std::uint64_t{1} << 34;

Timeline read_timeline(const std::string& file) {
  proto::Timeline message;
  if (!message.ParseFromString(read_file(file, kMostTimelineBytes)))
    throw InternalError("the executor's timeline cannot be read");
  Timeline timeline;
  for (const auto& event : message.events())
    timeline.events.push_back(
        {event.rank(), event.step(), event.instruction(), event.start_s(), event.end_s()});
  return timeline;
}

Measurement read_measurement(const std::string& folder) {
  const Json run = read_json(folder + "/run.json");
  const auto number = [](const Json& in, const char* name) { return in.at(name).get<double>(); };
  Measurement measurement;
  const Json& step = run.at("step_time_s");
  measurement.step_median_s = number(step, "median");
  measurement.step_least_s = number(step, "min");
  measurement.step_most_s = number(step, "max");
  measurement.memory_bytes = number(run, "memory_bytes");
  if (run.contains("machine_pace")) {
    const Json& pace = run.at("machine_pace");
    measurement.pace =
        planner::MachinePace{number(pace, "before"), number(pace, "after"), number(pace, "least"),
                             number(pace, "most"), number(pace, "step_time_s")};
  }
  if (run.contains("routing")) measurement.fullest_share = number(run.at("routing"), "fullest_share");
  measurement.timeline = read_timeline(folder + "/timeline");
  return measurement;
}

std::vector<std::string> arguments_of(const MeasureRequest& request, const std::string& folder) {
  std::vector<std::string> arguments = {
      "run",        request.plan_file,    "--steps", std::to_string(request.steps),
      "--timeline", folder + "/timeline", "--json",  folder + "/run.json"};
  arguments.insert(arguments.end(), {"--backend", request.backend});
  if (!request.data.empty()) arguments.insert(arguments.end(), {"--data", request.data});
  if (request.pace) arguments.emplace_back("--pace");
  return arguments;
}

// As the driver shows them, without loading CUDA; the second is Windows' (WSL).
bool machine_has_gpus() {
  std::error_code code;
  return std::filesystem::exists("/dev/nvidiactl", code) || std::filesystem::exists("/dev/dxg", code);
}

}  // namespace

Placement placement_of(const Cluster& cluster, int ranks) {
  Placement placement;
  if (cluster.fabric.transport == Transport::tcp)
    for (const NodeGroup& group : cluster.groups)
      placement.network_bytes_per_s =
          std::max(placement.network_bytes_per_s, group.node.nic.bandwidth_bytes_per_s);
  bool elsewhere = false;
  for (int rank = 0; rank < ranks; ++rank) {
    const DevicePlace place = cluster.place(rank % cluster.devices());
    int node = place.node;
    for (int group = 0; group < place.group; ++group)
      node -= cluster.groups[static_cast<std::size_t>(group)].count;
    const NodeType& type = cluster.groups[static_cast<std::size_t>(place.group)].node;
    const std::string host = type.hosts.empty() ? std::string() : type.hosts[static_cast<std::size_t>(node)];
    elsewhere = elsewhere || (!host.empty() && host != "localhost");
    placement.hosts.push_back(host);
  }
  if (!elsewhere) placement.hosts.clear();
  for (const std::string& host : placement.hosts)
    if (host.empty())
      throw UserError("the cluster's file names hosts for some of its nodes only",
                      "`hosts` in every node group, or in none");
  return placement;
}

bool is_for_gpus(const Plan& plan) {
  return plan.job->cluster.profile_of(0).kind == DeviceKind::gpu;
}

bool on_these_processors(const Plan& plan, const Placement& placement, const std::string& backend) {
  const bool gpus = is_for_gpus(plan) && machine_has_gpus();
  const bool processors = backend == "mpi" || (backend == "auto" && !gpus);
  return processors && !under_launcher() && placement.launcher == Launcher::mpirun &&
         placement.hosts.empty() && placement.mpirun_args.empty();
}

void check_memory(const Plan& plan, const Placement& placement, const std::string& backend,
                  std::optional<double> available_bytes) {
  if (!available_bytes || !on_these_processors(plan, placement, backend)) return;
  const planner::ProcessorMemory kept =
      planner::memory_on_processors(plan, discover_uncalibrated_localhost());
  if (kept.bytes() <= *available_bytes) return;
  throw NoAnswer(
      fmt::format("the plan's {} would keep {} on processors (weights, gradients and optimizer states {}, "
                  "activations and "
                  "buffers {}), and this machine has {} of memory left: {} more would do",
                  counted(plan.choices.world(), "rank"), human_bytes(kept.bytes()),
                  human_bytes(kept.state_bytes), human_bytes(kept.other_bytes), human_bytes(*available_bytes),
                  human_bytes(kept.bytes() - *available_bytes)));
}

std::string surprise_on_processors(const Plan& plan, const Placement& placement, const std::string& backend) {
  if (!is_for_gpus(plan) || !on_these_processors(plan, placement, backend)) return "";
  const Cluster machine = discover_localhost();
  const double step_s = planner::step_seconds_on_processors(plan, machine);
  const bool slow = step_s > kLongStepS, asked = backend == "mpi";
  if (asked && !slow) return "";
  const DeviceProfile& core = machine.profile_of(0);
  return fmt::format("the plan is for {}, and {} trains it on {}{}", plan.job->cluster.profile_of(0).name,
                     asked ? "--backend mpi" : "this machine without a GPU",
                     counted(usable_cores(), "processor core"),
                     slow ? fmt::format(": a step may take about {} (at their {} speed)",
                                        human_duration(step_s), core.calibrated ? "calibrated" : "assumed")
                          : std::string());
}

planner::Evaluation predict(const Plan& plan) {
  planner::Evaluation evaluation = planner::evaluate(plan);
  sim::SimulationOptions simulation;
  simulation.fold = evaluation.plan.choices.world() > kUnfoldedRanks;
  evaluation.simulation = sim::simulate(evaluation.plan, simulation);
  return evaluation;
}

Measured measure(const MeasureRequest& request) {
  const TemporaryFolder folder;
  std::string said;
  const int code = launch_executor_beside(request.mpi, request.ranks, arguments_of(request, folder.path()),
                                          request.placement, request.quiet ? &said : nullptr);
  if (code != 0) return {code, {}, said};
  return {0, read_measurement(folder.path()), said};
}

int join_measurement(const MeasureRequest& request) {
  return launch_executor(request.mpi, 0, arguments_of(request, "/nonexistent"));  // rank 0 writes files
}

planner::Validation validate(const planner::Evaluation& predicted, const Measurement& measured) {
  const sim::Simulation& simulation = predicted.simulation.value();
  planner::Validation validation;
  validation.predicted_step_time_s = predicted.step_time_s();
  validation.measured_step_time_s = measured.step_median_s;
  validation.by_kind =
      planner::join(predicted.plan, simulation.programs, simulation.timeline, measured.timeline);
  validation.predicted_bytes = predicted.memory.total;
  validation.measured_bytes = measured.memory_bytes;
  validation.pace = measured.pace;
  if (const auto share = planner::fullest_share(predicted.plan); share && measured.fullest_share > 0)
    validation.experts = planner::FullestShare{*share, measured.fullest_share};
  return validation;
}

}  // namespace orrery
