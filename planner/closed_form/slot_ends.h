// When the slots of a pipeline end, laid on its stages one after another: who waits for whose result, and how
// long that is on its way.
#pragma once

#include <vector>

#include "program/plan.h"
#include "program/schedule.h"

namespace orrery::planner {

constexpr double kSlotNotYet = -1;

// Whether the estimate of a pipeline lays its slots (step_model.cc). GPipe's is a sum.
constexpr bool estimate_lays_slots(Schedule schedule) {
  return schedule != Schedule::gpipe;
}

// Ends of forwards and backwards of each part of the model, by micro-batch.
class SlotEnds {
 public:
  // `hops`: seconds from each stage to the next, and from the last to the first.
  SlotEnds(const Choices& choices, int micro_batches, const std::vector<double>& hops);

  double& of(bool backward, int stage, int chunk, int micro_batch) {
    return at(backward, part_of(choices_, stage, chunk), micro_batch);
  }
  // When what the slot reads is there: kSlotNotYet where its sender has not run.
  double ready(const Slot& slot, int stage);

 private:
  double& at(bool backward, int part, int micro_batch) {
    std::vector<double>& ends = backward ? backward_ : forward_;
    return ends[static_cast<std::size_t>(part) * static_cast<std::size_t>(micro_batches_) +
                static_cast<std::size_t>(micro_batch)];
  }

  const Choices& choices_;
  int micro_batches_;
  std::vector<double> hop_behind_;  // by part: to the next, 0 where that is on the same stage
  std::vector<double> forward_, backward_;
};

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
                                 const std::vector<double>& hops, double micro_batches);

}  // namespace orrery::planner
