// When the slots of a pipeline end, laid on its stages one after another: who waits for whose result, and how
// long that is on its way.
#pragma once

#include <vector>

#include "planner/closed_form/slot_order.h"
#include "program/plan.h"

namespace orrery::planner {

// Whether the estimate of a pipeline lays its slots (step_model.cc). GPipe's is a sum.
constexpr bool estimate_lays_slots(Schedule schedule) {
  return schedule != Schedule::gpipe;
}

// What a stage takes for a micro-batch, for one_f_one_b_ends; seconds.
struct StageSlot {
  double forward = 0, forward_busy = 0;    // until the output can be sent, until the next slot may start
  double backward = 0, backward_busy = 0;  // likewise; without `weight`
  double weight = 0;  // gradients of weights, where they wait (zero-bubble); else 0 and part of `backward`
  double hop = 0;     // to the next stage; 0 from the last
  bool operator==(const StageSlot&) const = default;
};

// Of a pipeline under 1F1B, or under zero-bubble, which has its forwards and backwards in the same order:
// when each stage has run all its slots. O(stages x micro-batches); of many micro-batches some rounds are
// laid, and the others follow at the pace of period_1f1b_s.
std::vector<double> one_f_one_b_ends(const std::vector<StageSlot>& stages, double micro_batches,
                                     bool weights_wait);

// What a stage's chunk takes in a slot, for those who lay slots without their tails; seconds.
struct ChunkSlot {
  double forward = 0, forward_busy = 0;    // until the output can be sent, until the next slot may start
  double backward = 0, backward_busy = 0;  // inputs and weights together
  double weight = 0;                       // of `backward`, the gradients of weights
  double paired_gain = 0;  // of a forward and a backward side by side, as many layers as this chunk has
};

// Of a pipeline with several chunks a stage, interleaved or in a V: when each stage has run all its slots,
// its chunks taking `times` ([stage][chunk]). Of many micro-batches a few are laid: the others follow at the
// pace that these have found.
std::vector<double> chunked_ends(const Choices& choices, const std::vector<std::vector<ChunkSlot>>& times,
                                 const std::vector<double>& hops, double micro_batches, SlotOrders* orders);

}  // namespace orrery::planner
