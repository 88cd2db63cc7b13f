// The bound of a pipeline, its schedule slot by slot: each stage runs its slots in their order, none before
// what it reads has come from the neighbour, all as fast as an idle network lets them. What the sums of
// bound.cc do not see is in it: chunks of different length, and stages that wait for each other in the
// middle.
#include <algorithm>

#include "planner/closed_form/step_model.h"
#include "program/schedule.h"

namespace orrery::planner {
namespace {

constexpr double kNotYet = -1;

// Ends of forwards and backwards of each stage, by micro-batch and chunk.
class Ends {
 public:
  Ends(int stages, int chunks, int micro_batches)
      : stages_(stages),
        chunks_(chunks),
        micro_batches_(micro_batches),
        forward_(static_cast<std::size_t>(stages) * chunks * micro_batches, kNotYet),
        backward_(forward_) {}

  double& of(bool backward, int stage, int chunk, int micro_batch) {
    return (backward ? backward_ : forward_)[index(stage, chunk, micro_batch)];
  }

  // When what the slot reads is there: kNotYet where its sender has not run. Round the ring from the last
  // stage to the first goes what is not of the last chunk.
  double ready(const Slot& slot, int stage, const std::vector<double>& hops) {
    if (slot.kind == SlotKind::forward) {
      if (stage > 0) return sent(of(false, stage - 1, slot.chunk, slot.micro_batch), hops[stage - 1]);
      if (slot.chunk == 0) return 0;
      return sent(of(false, stages_ - 1, slot.chunk - 1, slot.micro_batch), hops[stages_ - 1]);
    }
    if (stage + 1 < stages_) return sent(of(true, stage + 1, slot.chunk, slot.micro_batch), hops[stage]);
    if (slot.chunk + 1 < chunks_)
      return sent(of(true, 0, slot.chunk + 1, slot.micro_batch), hops[stages_ - 1]);
    return of(false, stage, slot.chunk, slot.micro_batch);
  }

 private:
  std::size_t index(int stage, int chunk, int micro_batch) const {
    return (static_cast<std::size_t>(stage) * static_cast<std::size_t>(chunks_) +
            static_cast<std::size_t>(chunk)) *
               static_cast<std::size_t>(micro_batches_) +
           static_cast<std::size_t>(micro_batch);
  }
  static double sent(double end, double hop) { return end == kNotYet ? kNotYet : end + hop; }

  int stages_, chunks_, micro_batches_;
  std::vector<double> forward_, backward_;
};

}  // namespace

std::vector<double> StepModel::slot_ends(const Plan& plan, const Frame& frame) {
  const Choices& c = plan.choices;
  const auto m = static_cast<int>(plan.micro_batches());
  const double overhead_s = job_->runtime.micro_batch_overhead_s;
  struct Stage {
    std::vector<Slot> slots;
    std::vector<ChunkTimes> chunks;
    std::size_t next = 0;
    double free_s = 0;
    double pair_s = 0, paired_s = 0;  // when the last pair may begin, and what it has computed
  };
  std::vector<Stage> stages(static_cast<std::size_t>(c.pp));
  for (int stage = 0; stage < c.pp; ++stage) {
    Stage& own = stages[static_cast<std::size_t>(stage)];
    own.slots = schedule_slots(c.schedule, stage, c.pp, c.interleave, m, c.overlap_experts);
    const int twin = frame.cut->twin[stage];
    if (twin != stage)
      own.chunks = stages[static_cast<std::size_t>(twin)].chunks;
    else
      stage_times(c, frame, frame.geometry->alone, frame.alone_key, stage,
                  frame.geometry->kinds[stage].front(), &own.chunks);
  }
  Ends ends(c.pp, c.interleave, m);
  const auto run = [&](int stage, Stage* own) {
    const Slot& slot = own->slots[own->next];
    const double ready = ends.ready(slot, stage, frame.hops_least);
    if (ready == kNotYet) return false;
    const bool backward = slot.kind != SlotKind::forward;
    const ChunkTimes& t = own->chunks[static_cast<std::size_t>(slot.chunk)];
    const double compute = backward ? t.backward_compute : t.forward_compute;
    double& end = ends.of(backward, stage, slot.chunk, slot.micro_batch);
    const bool of_pair = slot.with_next || (own->next > 0 && own->slots[own->next - 1].with_next);
    if (!of_pair) {
      const bool first = !backward && slot.chunk == 0;
      const double begin = std::max(own->free_s + (first ? overhead_s : 0), ready);
      // Side by side with another micro-batch nothing but computation is sure to take its time.
      end = begin + (c.overlap_experts ? compute : backward ? t.backward : t.forward);
      own->free_s = begin + (c.overlap_experts ? compute : backward ? t.backward_busy : t.forward_busy);
    } else {
      // Both may begin when what stands before the pair has ended, and what follows it waits for both.
      if (slot.with_next) own->pair_s = own->free_s, own->paired_s = 0;
      end = std::max(own->pair_s, ready) + compute;
      own->paired_s += compute;
      own->free_s = std::max({own->free_s, end, own->pair_s + own->paired_s});
    }
    ++own->next;
    return true;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (int stage = 0; stage < c.pp; ++stage) {
      Stage& own = stages[static_cast<std::size_t>(stage)];
      while (own.next < own.slots.size() && run(stage, &own)) moved = true;
    }
  }
  std::vector<double> last;
  for (const Stage& own : stages) last.push_back(own.free_s);
  return last;
}

Bound StepModel::slot_bound(const Choices& c) {
  const Plan plan{job_, c};
  const Frame& own = frame(c);
  // Of zero-bubble it is not known how a backward pass divides, of processors not how fast a rank is whose
  // neighbours wait.
  const bool known = c.pp > 1 && c.schedule != Schedule::zero_bubble && c.sync == Sync::all_reduce &&
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
