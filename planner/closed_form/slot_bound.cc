// The bound of a pipeline, its schedule slot by slot: each stage runs its slots in their order, none before
// what it reads has come from the neighbour, all as fast as an idle network lets them. What the sums of
// bound.cc do not see is in it: chunks of different length, and stages that wait for each other in the
// middle.
#include <algorithm>

#include "planner/closed_form/slot_ends.h"
#include "planner/closed_form/step_model.h"
#include "program/schedule.h"

namespace orrery::planner {
std::vector<double> StepModel::slot_ends(const Plan& plan, const Frame& frame) {
  const Choices& c = plan.choices;
  const auto m = static_cast<int>(plan.micro_batches());
  const double overhead_s = job_->runtime.micro_batch_overhead_s;
  struct Stage {
    std::vector<ChunkTimes> chunks;
    double free_s = 0;
    double pair_s = 0, paired_s = 0;  // when the last pair may begin, and what it has computed
    bool pair = false;                // the slot before was the first of a pair
  };
  std::vector<Stage> stages(static_cast<std::size_t>(c.pp));
  for (int stage = 0; stage < c.pp; ++stage) {
    Stage& own = stages[static_cast<std::size_t>(stage)];
    const int twin = frame.cut->twin[stage];
    if (twin != stage)
      own.chunks = stages[static_cast<std::size_t>(twin)].chunks;
    else
      stage_times(c, frame, frame.geometry->alone, frame.alone_key, stage,
                  frame.geometry->kinds[stage].front(), &own.chunks);
  }
  const SlotOrder order(c, m);  // of all micro-batches, and asked for once: not kept
  std::vector<double> ends(order.results());
  for (const OrderedSlot& at : order.slots()) {
    const Slot& slot = at.slot;
    if (slot.kind == SlotKind::backward_weight) continue;  // how long it takes is not known
    Stage& own = stages[static_cast<std::size_t>(at.stage)];
    const double ready = ready_s(at, ends, frame.hops_least);
    const bool backward = slot.kind != SlotKind::forward;
    const ChunkTimes& t = own.chunks[static_cast<std::size_t>(slot.chunk)];
    const bool split = slot.kind == SlotKind::backward_input;
    const double compute = split ? t.least_of_inputs : backward ? t.backward_compute : t.forward_compute;
    double& end = ends[static_cast<std::size_t>(at.result)];
    if (!slot.with_next && !own.pair) {
      const bool first = !backward && slot.chunk == 0;
      const double begin = std::max(own.free_s + (first ? overhead_s : 0), ready);
      // Side by side with another micro-batch nothing but computation is sure to take its time.
      const bool bare = c.overlap_experts || split;
      end = begin + (bare ? compute : backward ? t.backward : t.forward);
      own.free_s = begin + (bare ? compute : backward ? t.backward_busy : t.forward_busy);
    } else {
      // Both may begin when what stands before the pair has ended, and what follows it waits for both.
      if (slot.with_next) own.pair_s = own.free_s, own.paired_s = 0;
      end = std::max(own.pair_s, ready) + compute;
      own.paired_s += compute;
      own.free_s = std::max({own.free_s, end, own.pair_s + own.paired_s});
    }
    own.pair = slot.with_next;
  }
  std::vector<double> last;
  for (const Stage& own : stages) last.push_back(own.free_s);
  return last;
}

Bound StepModel::slot_bound(const Choices& c) {
  const Plan plan{job_, c};
  const Frame& own = frame(c);
  // Where all backward passes are split it is not known how they divide, of processors not how fast a rank is
  // whose neighbours wait.
  const bool known = c.pp > 1 && !always_splits_backward(c.schedule) && c.sync == Sync::all_reduce &&
                     c.replica_batches.empty() && crossing_.empty() && idle_speedup_ == 1 &&
                     geometries_.uniform() &&
                     job_->cluster.communication.library != CommunicationLibrary::mpi;
  if (!known) return bound(plan, own, /*with_data=*/true);
  Choices layout = c;  // what slots depend on
  layout.zero = layout.shard_group = 0;
  layout.overlap_grad_reduce = true;
  layout.bucket_bytes = 0;
  const auto same = [&](const auto& entry) { return entry.first == layout; };
  auto at = std::find_if(slot_ends_.begin(), slot_ends_.end(), same);
  if (at == slot_ends_.end()) at = slot_ends_.insert(at, {layout, slot_ends(plan, own)});
  return bound(plan, own, /*with_data=*/true, &at->second);
}

}  // namespace orrery::planner
