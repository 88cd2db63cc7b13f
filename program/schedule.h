// Pipeline schedules: the order in which a stage runs forwards and backwards of micro-batches and model
// chunks.
#pragma once

#include <vector>

#include "program/plan.h"

namespace orrery {

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
// section 2.2). zero_bubble: ZB-H1 (Qi et al., arXiv 2401.10241), backward split in two.
// `paired` (Choices::overlap_experts; interleaved, or one stage): one more warm-up forward, so that each
// later forward and the backward behind it are of two micro-batches and may run side by side (Megatron-Core's
// --overlap-moe-expert-parallel-comm).
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

}  // namespace orrery
