#include "planner/closed_form/graph_cuts.h"

#include <algorithm>
#include <map>

#include "program/operator_work.h"
#include "program/placement.h"
#include "program/schedule.h"
#include "workloads/layer_graph.h"

namespace orrery::planner {

GraphCuts::GraphCuts(std::shared_ptr<const Job> job)
    : job_(std::move(job)), sums_(job_), memory_(job_), crossing_(crossing_operators(job_->workload)) {}

PipelineChain GraphCuts::chain(const Choices& c, const Geometry& geometry,
                               std::vector<PipelineStage>* stages) {
  const Plan plan{job_, c};
  const int layers = job_->workload.layers;
  const int parts = sums_.parts().count();
  const std::uint64_t shapes = inner_shapes_key(geometry.shapes);
  PipelineChain chain;
  std::map<DeviceKindAt, int> kinds;
  const auto kind_of = [&](const DeviceKindAt& kind) {
    const auto [at, fresh] = kinds.try_emplace(kind, static_cast<int>(kinds.size()));
    if (fresh) {
      const LayerSums& sums = sums_.of(c, Recompute::none, geometry.shapes, shapes, kind);
      std::vector<double>& seconds = chain.compute_s.emplace_back(static_cast<std::size_t>(layers), 0.0);
      for (int part = 0; part < parts; ++part)
        seconds[static_cast<std::size_t>(std::clamp(part - 1, 0, layers - 1))] +=
            sums.forward[part + 1] - sums.forward[part] + sums.backward[part + 1] - sums.backward[part];
    }
    return at->second;
  };
  std::map<std::uint64_t, int> ways;
  const Shard shard = shard_of(plan);
  const auto way_of = [&](const GroupShape& hop) {
    const auto [at, fresh] = ways.try_emplace(shape_key(hop), static_cast<int>(ways.size()));
    if (fresh) {
      std::vector<double>& seconds = chain.crossing_s.emplace_back(crossing_.size(), 0.0);
      for (std::size_t position = 0; position < crossing_.size(); ++position) {
        double bytes = 0;
        for (const int op : crossing_[position])
          bytes += output_bytes(job_->workload.operators[static_cast<std::size_t>(op)], shard);
        seconds[position] = transfer_s(bytes, hop, *job_);
      }
    }
    return at->second;
  };
  // Of several kinds of devices in a stage the slowest sets its time, the smallest its memory.
  const LayerBytes bytes = memory_.layer_bytes(c);
  chain.state_bytes = bytes.state;
  chain.kept_bytes = bytes.kept;
  const int micro_batches = static_cast<int>(std::max<std::int64_t>(1, plan.micro_batches()));
  stages->clear();
  for (int part = 0; part < parts_of(c); ++part) {
    const int at = place_of_part(c, part).stage;
    PipelineStage stage;
    double slowest = -1;
    for (const DeviceKindAt& kind : geometry.kinds[at]) {
      const int index = kind_of(kind);
      double all = 0;
      for (const double seconds : chain.compute_s[static_cast<std::size_t>(index)]) all += seconds;
      if (all > slowest) {
        slowest = all;
        stage.device = index;
      }
      const DeviceProfile& device = job_->cluster.profiles[static_cast<std::size_t>(kind.profile)];
      const double room =
          (device.memory_bytes - device.context_bytes) / (1 + job_->runtime.allocator_margin) - bytes.beside;
      stage.memory_bytes = stage.memory_bytes == 0 ? room : std::min(stage.memory_bytes, room);
    }
    stage.memory_bytes = std::max(stage.memory_bytes, 1.0);
    if (c.pp > 1) stage.way = way_of(geometry.hops[at]);
    stage.in_flight = peak_in_flight(c.schedule, at, c.pp, c.interleave, micro_batches);
    stages->push_back(stage);
  }
  return chain;
}

std::vector<std::vector<int>> GraphCuts::of(const Choices& c, const Geometry& geometry) {
  std::vector<PipelineStage> stages;
  PipelineChain chain = this->chain(c, geometry, &stages);
  std::vector<PipelineStage> unlimited = stages;
  for (PipelineStage& stage : unlimited) stage.memory_bytes = 0;
  std::vector<std::vector<int>> cuts;
  const auto add = [&](const std::vector<int>& cut) {
    if (std::find(cuts.begin(), cuts.end(), cut) == cuts.end()) cuts.push_back(cut);
  };
  const auto micro_batches = static_cast<double>(Plan{job_, c}.micro_batches());
  const auto add_best = [&](const std::vector<PipelineStage>& limited) {
    chain.charged = 1;
    if (const auto cut = optimal_cut(chain, limited)) add(cut->layers);
    chain.charged = 0;
    const std::vector<int>* best = nullptr;
    double least = 0;
    const std::vector<PipelineCut> front = cut_front(chain, limited);
    for (const PipelineCut& cut : front) {
      const double seconds = pipeline_s(chain, limited, cut.layers, micro_batches);
      if (best != nullptr && seconds >= least) continue;
      best = &cut.layers;
      least = seconds;
    }
    if (best != nullptr) add(*best);
  };
  add_best(unlimited);
  // The memory of a stage is that of all its chunks: no recurrence over chunks knows it.
  if (c.interleave == 1) add_best(stages);
  return cuts;
}

double least_slowest_stage_s(const PipelineChain& chain, const std::vector<PipelineStage>& stages) {
  double all = 0, longest = 0;
  for (std::size_t layer = 0; layer < chain.compute_s.front().size(); ++layer) {
    double fastest = chain.compute_s[static_cast<std::size_t>(stages.front().device)][layer];
    for (const PipelineStage& stage : stages)
      fastest = std::min(fastest, chain.compute_s[static_cast<std::size_t>(stage.device)][layer]);
    all += fastest;
    longest = std::max(longest, fastest);
  }
  return std::max(all / static_cast<double>(stages.size()), longest);
}

double cut_excess(const Plan& plan) {
  if (plan.choices.pp == 1) return 0;
  Geometries geometries(plan.job);
  GraphCuts cuts(plan.job);
  std::vector<PipelineStage> stages;
  const PipelineChain chain = cuts.chain(plan.choices, geometries.of(plan.choices), &stages);
  return slowest_stage_s(chain, stages, layers_by_part(plan)) / least_slowest_stage_s(chain, stages) - 1;
}

}  // namespace orrery::planner
