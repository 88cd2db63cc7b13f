#include "planner/closed_form/slot_order.h"

#include <algorithm>

namespace orrery::planner {
namespace {

// Layouts whose order is kept: some hundred kilobytes each.
constexpr std::size_t kKept = 16;

// What each slot reads and where its end goes.
class Links {
 public:
  Links(const Choices& choices, int micro_batches)
      : choices_(choices), parts_(parts_of(choices)), micro_batches_(micro_batches) {
    for (int part = 0; part + 1 < parts_; ++part) {
      const ChunkPlace here = place_of_part(choices, part), next = place_of_part(choices, part + 1);
      const int hop = here.chunk == next.chunk ? std::min(here.stage, next.stage) : here.stage;
      hop_behind_.push_back(here.stage == next.stage ? kNone : hop);
    }
  }

  std::size_t results() const {
    return 2 * static_cast<std::size_t>(parts_) * static_cast<std::size_t>(micro_batches_);
  }

  OrderedSlot of(const Slot& slot, int stage) const {
    OrderedSlot own{slot, stage, kNone, kNone, kNone};
    if (slot.kind == SlotKind::backward_weight) return own;  // behind its other half
    const int part = part_of(choices_, stage, slot.chunk);
    const bool backward = slot.kind != SlotKind::forward;
    own.result = result(backward, part, slot.micro_batch);
    if (backward && part + 1 == parts_) {
      own.reads = result(false, part, slot.micro_batch);
    } else if (backward || part > 0) {
      own.reads = result(backward, backward ? part + 1 : part - 1, slot.micro_batch);
      own.hop = hop_behind_[static_cast<std::size_t>(backward ? part : part - 1)];
    }
    return own;
  }

 private:
  int result(bool backward, int part, int micro_batch) const {
    return ((backward ? parts_ : 0) + part) * micro_batches_ + micro_batch;
  }

  const Choices& choices_;
  int parts_, micro_batches_;
  std::vector<int> hop_behind_;  // by part: to the next, kNone where that is on the same stage
};

}  // namespace

SlotOrder::SlotOrder(const Choices& c, int micro_batches) {
  const Links links(c, micro_batches);
  results_ = links.results();
  std::vector<std::vector<Slot>> of_stage;
  std::size_t total = 0;
  for (int stage = 0; stage < c.pp; ++stage) {
    of_stage.push_back(
        schedule_slots(c.schedule, stage, c.pp, c.interleave, micro_batches, c.overlap_experts));
    total += of_stage.back().size();
  }
  slots_.reserve(total);
  std::vector<std::size_t> next(of_stage.size(), 0);
  std::vector<bool> there(results_, false);
  const auto run = [&](int stage) {
    std::vector<Slot>& own = of_stage[static_cast<std::size_t>(stage)];
    std::size_t& at = next[static_cast<std::size_t>(stage)];
    const std::size_t count = at < own.size() && own[at].with_next ? 2 : 1;  // a pair begins with both
    if (at + count > own.size()) return false;
    const std::size_t before = slots_.size();
    for (std::size_t i = 0; i < count; ++i) {
      const OrderedSlot slot = links.of(own[at + i], stage);
      if (slot.reads != kNone && !there[static_cast<std::size_t>(slot.reads)]) {
        slots_.resize(before);
        return false;
      }
      slots_.push_back(slot);
    }
    for (std::size_t i = before; i < slots_.size(); ++i)
      if (slots_[i].result != kNone) there[static_cast<std::size_t>(slots_[i].result)] = true;
    at += count;
    return true;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (int stage = 0; stage < c.pp; ++stage)
      while (run(stage)) moved = true;
  }
}

const SlotOrder& SlotOrders::of(const Choices& c, int micro_batches) {
  for (const Entry& entry : kept_)
    if (entry.schedule == c.schedule && entry.stages == c.pp && entry.chunks == c.interleave &&
        entry.micro_batches == micro_batches && entry.paired == c.overlap_experts)
      return entry.order;
  Entry added{c.schedule, c.pp, c.interleave, micro_batches, c.overlap_experts, SlotOrder(c, micro_batches)};
  if (kept_.size() < kKept) return kept_.emplace_back(std::move(added)).order;
  Entry& place = kept_[next_++ % kKept];
  place = std::move(added);
  return place.order;
}

}  // namespace orrery::planner
