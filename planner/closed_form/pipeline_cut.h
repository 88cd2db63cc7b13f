// The optimal cut of a chain of heterogeneous layers into the stages of a pipeline.
//
// Layers stand in the workload's order. A cut before layer i carries every tensor that is made before it and
// read in it or behind it: a shortcut around the cut counts, and a tensor that passes several stages counts
// at each of the cuts that it passes.
//
// Of one micro-batch, forward and backward, let C_s(a, b) be the seconds that layers [a, b) compute on the
// devices of stage s, and x_s(i) the seconds that what crosses position i takes one way from stage s to stage
// s + 1 (nothing at both ends of the model). With
//   T_s(a, b) = max(C_s(a, b) + r (x_{s-1}(a) + x_s(b)), x_s(b)),
//               infinite where [a, b) exceeds the memory of stage s,
//   F_0(b) = T_0(0, b),   F_s(b) = min over a < b of max(F_{s-1}(a), T_s(a, b)),
// the least time of the slowest stage is F_{P-1}(L): dynamic programming, exact, O(P L^2) time and O(P L)
// memory. r says how much of the transfer a stage pays for: 1 where it waits for its messages, and what two
// equally busy neighbours pay under 1F1B (their loop of forward, message, forward, backward, message,
// backward takes C_s + C_{s+1} + 2 x and has two micro-batches in it); 0 where messages hide behind
// computation.
//
// Of all cuts with the least slowest stage the one with the least transfer in all is chosen (the same
// recurrence over sums, stages limited to that time), of those the one with the later positions.
#pragma once

#include <optional>
#include <vector>

namespace orrery::planner {

// All lists of layers have one entry a layer, `crossing_s` one a position: entry i is before layer i; those
// of the first and behind the last layer are not read.
struct PipelineChain {
  std::vector<std::vector<double>> compute_s;   // [kind of device][layer], one micro-batch there and back
  std::vector<std::vector<double>> crossing_s;  // [kind of way][position], one way
  std::vector<double> state_bytes;  // [layer] weights, gradients, optimizer's states; may be empty
  double charged = 1;               // r above
  std::vector<double> kept_bytes;   // [layer] of one micro-batch until its backward; may be empty
};

struct PipelineStage {
  int device = 0;           // index in compute_s
  int way = 0;              // to the next stage: index in crossing_s
  double memory_bytes = 0;  // for states and activations; 0: no limit
  double in_flight = 1;     // micro-batches whose activations it holds
};

struct PipelineCut {
  std::vector<int> layers;  // of each stage, at least one each
  double slowest_s = 0;     // T of the slowest stage
  double transfer_s = 0;    // of all cuts, one way
};

// Empty where there are fewer layers than stages, or no cut fits in memory.
std::optional<PipelineCut> optimal_cut(const PipelineChain& chain, const std::vector<PipelineStage>& stages);
// Cuts that trade the slowest stage for transfer: the optimal one first; then, the slowest stage being
// allowed kFrontStep more each time, the ones with the least transfer, until no cut has less. None is both
// slower and no less in transfer than another.
std::vector<PipelineCut> cut_front(const PipelineChain& chain, const std::vector<PipelineStage>& stages);
constexpr double kFrontStep = 1.03;
struct PipelineSlot {
  double busy_s = 0;     // of one micro-batch, until the next may start
  double through_s = 0;  // until its output and its gradient can be sent
  double way_s = 0;      // to the next stage
  double weights_s = 0;  // of busy_s, what stands between a backward pass and the next forward (zero-bubble)
};
// Seconds that a pipeline under 1F1B or zero-bubble takes for one more micro-batch: the longest of the
// stages, and of the runs of stages [s, e]. Such a run is a loop (the backward pass comes back from e to s,
// which answers with a forward pass that e needs) with e - s + 1 micro-batches in it. Of more than kAllLoops
// stages only the runs of two and those that end at the last stage are looked at.
double period_1f1b_s(const std::vector<PipelineSlot>& stages);
constexpr int kAllLoops = 32;
// The closed form of so many micro-batches under 1F1B: one there and back, and the period for every other.
double pipeline_s(const PipelineChain& chain, const std::vector<PipelineStage>& stages,
                  const std::vector<int>& layers, double micro_batches);
// T of the slowest stage of a given cut, whatever its memory.
double slowest_stage_s(const PipelineChain& chain, const std::vector<PipelineStage>& stages,
                       const std::vector<int>& layers);

}  // namespace orrery::planner
