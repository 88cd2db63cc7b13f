#include "sim/jobs.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "cost/compute_cost.h"
#include "program/lower/lowering.h"
#include "sim/interpreter.h"
#include "sim/plan_bytes.h"
#include "sim/processes/isolate.h"
#include "sim/scenario/scenario.h"

namespace orrery::sim {
namespace {

constexpr int kLeastSteps = 4;
constexpr int kMostSteps = 64;

void check(const Cluster& cluster, const std::vector<PlacedJob>& jobs) {
  if (jobs.empty()) throw UserError("no job to simulate");
  std::set<int> taken;
  for (const PlacedJob& job : jobs) {
    check_plan(job.plan);
    if (job.plan.choices.asynchronous())
      throw UserError("asynchronous parameter servers beside other jobs are not simulated",
                      "expected another `sync`, or one job");
    if (static_cast<int>(job.devices.size()) != job.plan.choices.world())
      throw UserError("a job of " + std::to_string(job.plan.choices.world()) + " ranks placed on " +
                          std::to_string(job.devices.size()) + " devices",
                      "a device for each rank");
    for (const int device : job.devices) {
      if (device < 0 || device >= cluster.devices())
        throw UserError("device " + std::to_string(device), "0 to " + std::to_string(cluster.devices() - 1));
      if (!taken.insert(device).second)
        throw UserError("device " + std::to_string(device) + " is given to two ranks", "jobs side by side");
    }
    const Plan& first = jobs.front().plan;
    if (job.plan.job->runtime.name != first.job->runtime.name)
      throw UserError("jobs of different runtime profiles on one cluster", "one runtime profile");
    if (job.plan.expert_exposed() != first.expert_exposed())
      throw UserError("jobs with and without `etp` on one cluster", "all with, or all without");
  }
}

// The jobs' ranks one after another.
class Together {
 public:
  Together(const Cluster& cluster, const std::vector<PlacedJob>& jobs)
      : cluster_(cluster), jobs_(jobs), network_(cluster) {
    costs_.resize(jobs.size());
    for (std::size_t j = 0; j < jobs.size(); ++j) {
      const int first = static_cast<int>(programs_.size());
      for (const DeviceProfile& profile : cluster.profiles) costs_[j].emplace_back(jobs[j].plan, profile);
      for (std::size_t rank = 0; rank < jobs[j].devices.size(); ++rank) {
        Program program = lower(jobs[j].plan, static_cast<int>(rank));
        shift(program, first);
        programs_.push_back(std::move(program));
        devices_.push_back(jobs[j].devices[rank]);
        job_of_.push_back(j);
      }
    }
    ScenarioInput input;
    input.network = &network_;
    for (std::size_t i = 0; i < programs_.size(); ++i) {
      input.programs.push_back(&programs_[i]);
      input.class_of.push_back(static_cast<int>(i));
    }
    input.device_of = [this](int rank) { return devices_[static_cast<std::size_t>(rank)]; };
    input.work_s = [&](const Program& program, const Instruction& instruction) {
      return cost_of(cluster, program.rank).seconds(program, instruction);
    };
    input.beside_s = [&](const Program& program, const Instruction& instruction) {
      return cost_of(cluster, program.rank).beside_seconds(instruction);
    };
    input.host_s = [&](const Program& program, const Instruction& instruction) {
      return cost_of(cluster, program.rank).host_seconds(instruction);
    };
    input.host_waits = [&](const Program& program) {
      return cost_of(cluster, program.rank).host_waits(program);
    };
    set_runtime(jobs.front().plan, &input);
    scenario_ = build_scenario(input);
  }

  // Ends of the steps of each job that runs steps[j] of them.
  std::vector<std::vector<double>> ends(const std::vector<int>& steps) {
    const Trace trace = trace_of(steps);
    std::vector<std::vector<double>> result(steps.size());
    for (std::size_t j = 0; j < steps.size(); ++j) result[j].assign(static_cast<std::size_t>(steps[j]), 0);
    for (std::size_t r = 0; r < programs_.size(); ++r)
      for (std::size_t s = 0; s < result[job_of_[r]].size(); ++s)
        result[job_of_[r]][s] = std::max(result[job_of_[r]][s], trace.rank_step_ends_s[s][r]);
    return result;
  }

 private:
  Trace trace_of(const std::vector<int>& steps) {
    if (!shares_links(scenario_)) return trace_here(steps);
    Work work;
    work.body = [&](int) { return to_bytes(trace_here(steps)); };
    work.request = [&](int) { return request_of(steps); };
    work.function = [](const std::string& request) { return answer(request); };
    return trace_from_bytes(run_isolated(work));
  }

  Trace trace_here(const std::vector<int>& steps) {
    for (std::size_t r = 0; r < programs_.size(); ++r) scenario_.ranks[r].steps = steps[job_of_[r]];
    return interpret(scenario_, *std::max_element(steps.begin(), steps.end()));
  }

  std::string request_of(const std::vector<int>& steps) const {
    ByteWriter out;
    write_cluster(out, cluster_);
    out.each(jobs_, [&](const PlacedJob& job) {
      write_plan(out, job.plan);
      out(job.devices);
    });
    out(steps);
    return out.take();
  }

  static std::string answer(const std::string& request) {
    ByteReader in(request);
    const Cluster cluster = read_cluster(in);
    std::vector<PlacedJob> jobs;
    in.each(jobs, [&](PlacedJob& job) {
      job.plan = read_plan(in);
      in(job.devices);
    });
    std::vector<int> steps;
    in(steps);
    return to_bytes(Together(cluster, jobs).trace_here(steps));
  }

  const ComputeCost& cost_of(const Cluster& cluster, int of) const {
    const auto rank = static_cast<std::size_t>(of);
    const DevicePlace place = cluster.place(devices_[rank]);
    const int profile = cluster.groups[static_cast<std::size_t>(place.group)].node.profile;
    return costs_[job_of_[rank]][static_cast<std::size_t>(profile)];
  }

  static void shift(Program& program, int first) {
    program.rank += first;
    for (Group& group : program.groups)
      for (std::int32_t& rank : group.ranks) rank += first;
    for (Instruction& instruction : program.instructions)
      for (Transfer& transfer : instruction.transfers) transfer.peer += first;
  }

  const Cluster& cluster_;
  const std::vector<PlacedJob>& jobs_;
  Network network_;
  std::vector<Program> programs_;
  std::vector<int> devices_;
  std::vector<std::size_t> job_of_;
  std::vector<std::vector<ComputeCost>> costs_;  // by job and profile
  Scenario scenario_;
};

}  // namespace

std::vector<double> simulate_jobs(const Cluster& cluster, const std::vector<PlacedJob>& jobs) {
  check(cluster, jobs);
  Together together(cluster, jobs);
  // How long a step is, so that quick jobs run often enough to meet the slow ones throughout.
  const auto first = together.ends(std::vector<int>(jobs.size(), 1));
  double longest = 0;
  for (const std::vector<double>& ends : first) longest = std::max(longest, ends.back());
  std::vector<int> steps;
  for (const std::vector<double>& ends : first) {
    const double ratio = ends.back() > 0 ? kLeastSteps * longest / ends.back() : kLeastSteps;
    steps.push_back(std::clamp(static_cast<int>(std::ceil(ratio)), kLeastSteps, kMostSteps));
  }
  const auto ends = together.ends(steps);
  double all_run = ends.front().back();
  for (const std::vector<double>& of_job : ends) all_run = std::min(all_run, of_job.back());
  std::vector<double> result;
  for (const std::vector<double>& of_job : ends) {
    std::size_t last = 1;
    while (last + 1 < of_job.size() && of_job[last + 1] <= all_run) ++last;
    result.push_back((of_job[last] - of_job[0]) / static_cast<double>(last));
  }
  return result;
}

}  // namespace orrery::sim
