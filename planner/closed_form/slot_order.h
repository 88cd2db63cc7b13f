// The slots of a pipeline's stages in one order, none before what it reads: it depends on the layout alone,
// so that laying a plan's times on it is one pass (slot_ends.h, slot_bound.cc).
#pragma once

#include <cstddef>
#include <vector>

#include "program/plan.h"
#include "program/schedule.h"

namespace orrery::planner {

constexpr int kNone = -1;

struct OrderedSlot {
  Slot slot;  // halves of a pair (Slot::with_next) stand behind each other
  int stage = 0;
  int result = kNone;  // where its end is kept, of `results`; of weights' gradients nowhere
  int reads = kNone;   // whose end it waits for, likewise; kNone: nobody's
  int hop = kNone;     // which way that takes to this stage: by the stage before it, round the ring the last
};

class SlotOrder {
 public:
  SlotOrder(const Choices& choices, int micro_batches);

  const std::vector<OrderedSlot>& slots() const { return slots_; }
  std::size_t results() const { return results_; }

 private:
  std::vector<OrderedSlot> slots_;
  std::size_t results_ = 0;
};

// When what the slot reads is there, `ends` being those of all slots before it and `hops` seconds from each
// stage to the next, and from the last to the first.
inline double ready_s(const OrderedSlot& of, const std::vector<double>& ends,
                      const std::vector<double>& hops) {
  if (of.reads == kNone) return 0;
  const double end_s = ends[static_cast<std::size_t>(of.reads)];
  return of.hop == kNone ? end_s : end_s + hops[static_cast<std::size_t>(of.hop)];
}

// Those of the layouts that were looked at last: a search asks for one layout's again and again.
class SlotOrders {
 public:
  const SlotOrder& of(const Choices& choices, int micro_batches);

 private:
  struct Entry {
    Schedule schedule;
    int stages, chunks, micro_batches;
    bool paired;
    SlotOrder order;
  };
  std::vector<Entry> kept_;
  std::size_t next_ = 0;  // which makes room
};

}  // namespace orrery::planner
