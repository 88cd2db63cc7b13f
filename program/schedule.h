// Pipeline schedules: the order in which a stage runs forwards and backwards of micro-batches and model
// chunks.
#pragma once

#include <vector>

#include "program/plan.h"

namespace orrery {

// Whether any backward pass runs in two, the gradients of weights apart and later; whether all of them do.
constexpr bool splits_backward(Schedule schedule) {
  return schedule == Schedule::zero_bubble || schedule == Schedule::dualpipe_v;
}
constexpr bool always_splits_backward(Schedule schedule) {
  return schedule == Schedule::zero_bubble;
}

// Model chunks of a stage where the schedule leaves no choice; 0 where it does.
constexpr int fixed_chunks(Schedule schedule) {
  return schedule == Schedule::interleaved ? 0 : schedule == Schedule::dualpipe_v ? 2 : 1;
}

// Micro-batches that a replica may have: a multiple of `unit`, and not below `least`.
struct MicroBatchRule {
  int unit = 1;
  int least = 1;
};
constexpr MicroBatchRule micro_batch_rule(Schedule schedule, int stages) {
  if (schedule == Schedule::interleaved) return {stages, stages};
  if (schedule == Schedule::dualpipe_v) return {1, 2 * stages};
  return {};
}

enum class SlotKind : std::uint8_t { forward, backward, backward_input, backward_weight };

struct Slot {
  SlotKind kind = SlotKind::forward;
  int micro_batch = 0;
  int chunk = 0;
  bool with_next = false;  // a forward that runs side by side with the backward in the next slot
  bool operator==(const Slot&) const = default;
};

// gpipe: all forwards, then all backwards in reverse order of micro-batches (Huang et al., arXiv 1811.06965).
// 1f1b: min(pp - 1 - stage, m) warm-up forwards, then one forward and one backward in turn (Narayanan et al.,
// SC'21). interleaved: the same over pp * chunks virtual stages; m must be a multiple of pp (ibid.,
// section 2.2). zero_bubble: ZB-H1 (Qi et al., arXiv 2401.10241), backward split in two. dualpipe_v:
// DualPipeV (deepseek-ai/DualPipe), DualPipe cut in half: chunks in a V, in its middle a forward of one chunk
// and a backward of the other in turn, weights' gradients apart at both ends; m must be 2 pp at least.
// `paired` (Choices::overlap_experts; interleaved, or one stage): one more warm-up forward, so that each
// later forward and the backward behind it are of two micro-batches and may run side by side (Megatron-Core's
// --overlap-moe-expert-parallel-comm). dualpipe_v: its slots are such pairs as they are.
std::vector<Slot> schedule_slots(Schedule schedule, int stage, int stages, int chunks, int micro_batches,
                                 bool paired = false);

// Most micro-batches (of one chunk each) whose activations a stage holds at once under its schedule.
int peak_in_flight(Schedule schedule, int stage, int stages, int chunks, int micro_batches,
                   bool paired = false);
// Pairs of slots that run side by side on a stage in a step.
int paired_slots(const Plan& plan, int stage, std::int64_t micro_batches);

// Megatron-LM before its overlapped pipeline: after each slot its output and the next slot's input travel
// together, and nothing is computed meanwhile (send_forward_recv_backward and its kin).
bool pipeline_blocks(const Plan& plan);

// Over all of its chunks.
int layers_of_largest_stage(const Plan& plan);

}  // namespace orrery
