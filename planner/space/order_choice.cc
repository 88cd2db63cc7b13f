#include "planner/space/order_choice.h"

#include <algorithm>
#include <limits>

#include "planner/closed_form/graph_cuts.h"
#include "planner/space/space.h"
#include "workloads/graph_layers.h"
#include "workloads/linear_order.h"

namespace orrery::planner {
namespace {

// Most stages that orders are compared for.
constexpr int kMostStages = 16;

bool layers_were_found(const Workload& workload) {
  std::vector<Operator> operators = workload.operators;
  if (assign_layers(&operators) != workload.layers) return false;
  return std::equal(operators.begin(), operators.end(), workload.operators.begin(),
                    [](const Operator& a, const Operator& b) { return a.layer == b.layer; });
}

// Seconds of the slowest stage of the optimal cut into so many; infinite where there are fewer layers.
double slowest_s(const std::shared_ptr<const Job>& job, GraphCuts& cuts, Geometries& geometries, int stages) {
  Choices choices;
  choices.pp = stages;
  choices.dp = job->cluster.devices() / stages;
  const std::int64_t share = std::max<std::int64_t>(1, job->training.samples_each(choices.dp));
  // As many micro-batches as keep a pipeline busy, where the batch has them.
  for (const int size : divisors(share))
    if (size == 1 || share / size >= 4 * stages) choices.micro_batch = size;
  std::vector<PipelineStage> unlimited;
  const PipelineChain chain = cuts.chain(choices, geometries.of(choices), &unlimited);
  for (PipelineStage& stage : unlimited) stage.memory_bytes = 0;
  const auto cut = optimal_cut(chain, unlimited);
  return cut ? cut->slowest_s : std::numeric_limits<double>::infinity();
}

}  // namespace

std::shared_ptr<const Job> with_order(const std::shared_ptr<const Job>& job, const Pins& pins) {
  const int world = job->cluster.devices();
  if (job->workload.transformer || world == 1 || pins.stage_layers || (pins.pp && *pins.pp == 1)) return job;
  // On this machine plans are there to be run, and the executor is tried on files as they are.
  if (job->cluster.fabric.transport == Transport::host || !layers_were_found(job->workload)) return job;
  std::vector<int> counts = pins.pp ? std::vector<int>{*pins.pp} : divisors(world);
  std::erase_if(counts, [&](int stages) {
    return stages <= 1 || stages > kMostStages || world % stages != 0 ||
           !job->training.divides_over(world / stages);
  });
  if (counts.empty()) return job;
  std::vector<std::shared_ptr<const Job>> jobs;
  std::vector<std::vector<double>> slowest;
  std::vector<double> least(counts.size(), std::numeric_limits<double>::infinity());
  for (const std::vector<int>& order : linear_orders(job->workload)) {
    auto moved = std::make_shared<Job>(*job);
    moved->workload = in_order(job->workload, order);
    // The file's own order comes first: with no heavy block there is no more to cut.
    if (jobs.empty() && !has_parallel_branches(moved->workload)) return job;
    jobs.push_back(std::move(moved));
    GraphCuts cuts(jobs.back());
    Geometries geometries(jobs.back());
    slowest.emplace_back();
    for (std::size_t i = 0; i < counts.size(); ++i) {
      slowest.back().push_back(slowest_s(jobs.back(), cuts, geometries, counts[i]));
      least[i] = std::min(least[i], slowest.back().back());
    }
  }
  // Every number of stages counts alike: by how much its slowest stage is above the best order's.
  std::size_t best = 0;
  double best_excess = std::numeric_limits<double>::infinity();
  for (std::size_t order = 0; order < jobs.size(); ++order) {
    double excess = 0;
    for (std::size_t i = 0; i < counts.size(); ++i)
      if (least[i] < std::numeric_limits<double>::infinity()) excess += slowest[order][i] / least[i];
    if (excess >= best_excess) continue;
    best_excess = excess;
    best = order;
  }
  return jobs[best];
}

}  // namespace orrery::planner
