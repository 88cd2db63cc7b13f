#include "planner/space/order_choice.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "planner/closed_form/estimator.h"
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

// Of a pipeline of so many stages, cut so that its slowest takes least, the step by the closed form with the
// micro-batch that suits it best; infinite where there are fewer layers.
double step_s(const std::shared_ptr<const Job>& job, GraphCuts& cuts, Geometries& geometries,
              Estimator& estimator, int stages) {
  Choices choices;
  choices.pp = stages;
  choices.dp = job->cluster.devices() / stages;
  double least_s = std::numeric_limits<double>::infinity();
  for (const int size : divisors(std::max<std::int64_t>(1, job->training.samples_each(choices.dp)))) {
    choices.micro_batch = size;
    std::vector<PipelineStage> unlimited;
    const PipelineChain chain = cuts.chain(choices, geometries.of(choices), &unlimited);
    for (PipelineStage& stage : unlimited) stage.memory_bytes = 0;
    const auto cut = optimal_cut(chain, unlimited);
    if (!cut) break;
    choices.stage_layers = cut->layers;
    least_s = std::min(least_s, estimator.times(choices).estimate_s);
    choices.stage_layers.clear();
  }
  return least_s;
}

}  // namespace

std::shared_ptr<const Job> with_order(const std::shared_ptr<const Job>& job, const Pins& pins) {
  const int world = job->cluster.devices();
  if (job->workload.transformer || world == 1) return job;
  // On this machine plans are there to be run, and the executor is tried on files as they are.
  if (job->cluster.fabric.transport == Transport::host || !layers_were_found(job->workload)) return job;
  // Whatever is pinned: a pin leaves a part of the space that there is without it, or what is proven of the
  // whole would not hold of the part.
  std::vector<int> counts = divisors(world);
  std::erase_if(counts, [&](int stages) {
    return stages <= 1 || stages > kMostStages || world % stages != 0 ||
           !job->training.divides_over(world / stages);
  });
  if (counts.empty()) return job;
  std::shared_ptr<const Job> best;
  double best_s = std::numeric_limits<double>::infinity();
  for (const std::vector<int>& order : linear_orders(job->workload)) {
    auto moved = std::make_shared<Job>(*job);
    moved->workload = in_order(job->workload, order);
    // The file's own order comes first: with no heavy block there is no more to cut.
    if (best == nullptr && !has_parallel_branches(moved->workload)) return job;
    if (best == nullptr) best = moved;
    GraphCuts cuts(moved);
    Geometries geometries(moved);
    Estimator estimator(moved);
    double least_s = std::numeric_limits<double>::infinity();
    for (const int stages : counts)
      least_s = std::min(least_s, step_s(moved, cuts, geometries, estimator, stages));
    if (least_s >= best_s) continue;
    best_s = least_s;
    best = std::move(moved);
  }
  if (!pins.stage_layers) return best;
  // Pinned layers are those of an answer; or, where they add up to the file's alone, of the file.
  const int layers = std::accumulate(pins.stage_layers->begin(), pins.stage_layers->end(), 0);
  return layers == best->workload.layers ? best : job;
}

}  // namespace orrery::planner
