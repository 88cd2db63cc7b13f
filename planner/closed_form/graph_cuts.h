// Cuts of models whose layers are different, for the space of plans: the optimal ones (pipeline_cut.h) by the
// closed form's times, the cluster's devices and ways, and the memory model's bytes.
#pragma once

#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "planner/closed_form/memory_model.h"
#include "planner/closed_form/pipeline_cut.h"
#include "planner/tables/geometry.h"
#include "planner/tables/layer_sums.h"
#include "program/plan.h"

namespace orrery::planner {

class GraphCuts {
 public:
  explicit GraphCuts(std::shared_ptr<const Job> job);
  GraphCuts(const GraphCuts&) = delete;

  // The optimal cuts into the stages of `choices` (into its pp * interleave chunks, the slowest chunk being
  // the fastest possible, where stages have several): the one with the least slowest stage, transfers charged
  // in full, and of those that trade the slowest stage's computation for less transfer the fastest by the
  // closed form (cut_front, pipeline_s). Where they do not fit in memory, without ZeRO and recomputation,
  // also the best that do. No two alike; none where there are fewer layers than stages.
  std::vector<std::vector<int>> of(const Choices& choices, const Geometry& geometry);
  // The problem that it solves.
  PipelineChain chain(const Choices& choices, const Geometry& geometry, std::vector<PipelineStage>* stages);

 private:
  std::shared_ptr<const Job> job_;
  LayerSumsTable sums_;
  MemoryModel memory_;
  std::vector<std::vector<int>> crossing_;
};

// No cut between these layers into these stages has a slowest stage below this, in whatever order the layers
// stand: the mean of all layers over the stages, or the longest layer, each on the device that is fastest for
// it. On like devices every order has a cut that computes for at most that mean plus the longest layer.
double least_slowest_stage_s(const PipelineChain& chain, const std::vector<PipelineStage>& stages);

// By how much the slowest stage of a plan's cut, transfers included, is above that; 0 for one stage.
double cut_excess(const Plan& plan);

}  // namespace orrery::planner
