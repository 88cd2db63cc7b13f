#include "planner/closed_form/slot_order.h"

#include <catch2/catch.hpp>

namespace orrery::planner {
namespace {

Choices pipeline(Schedule schedule, int stages, int chunks, bool paired) {
  Choices c;
  c.schedule = schedule;
  c.pp = stages;
  c.interleave = chunks;
  c.overlap_experts = paired;
  return c;
}

TEST_CASE(
    "a pipeline's slots are all ordered, each stage's as its schedule has them, none before what it reads") {
  struct Case {
    Schedule schedule;
    int chunks;
    bool paired;
  };
  for (const Case& one : {Case{Schedule::gpipe, 1, false},
                          {Schedule::one_f_one_b, 1, false},
                          {Schedule::zero_bubble, 1, false},
                          {Schedule::interleaved, 2, false},
                          {Schedule::interleaved, 3, false},
                          {Schedule::interleaved, 2, true},
                          {Schedule::dualpipe_v, 2, false},
                          {Schedule::dualpipe_v, 2, true}})
    for (const int pp : {1, 2, 3, 4, 8})
      for (const int rounds : {1, 2, 3, 5}) {
        if (pp == 1 && one.chunks > 1) continue;
        const MicroBatchRule rule = micro_batch_rule(one.schedule, pp);
        const int m = rule.least * rounds;
        const Choices c = pipeline(one.schedule, pp, one.chunks, one.paired);
        INFO(name_of(one.schedule) << " of " << pp << " x " << one.chunks << ", " << m
                                   << " micro-batches, paired: " << one.paired);
        const SlotOrder order(c, m);
        std::vector<std::vector<Slot>> by_stage(static_cast<std::size_t>(pp));
        std::vector<bool> there(order.results(), false);
        for (std::size_t i = 0; i < order.slots().size(); ++i) {
          const OrderedSlot& at = order.slots()[i];
          by_stage[static_cast<std::size_t>(at.stage)].push_back(at.slot);
          if (at.reads != kNone) REQUIRE(there[static_cast<std::size_t>(at.reads)]);
          if (at.slot.with_next) {  // a pair begins with both halves
            REQUIRE(i + 1 < order.slots().size());
            const OrderedSlot& back = order.slots()[i + 1];
            REQUIRE(back.stage == at.stage);
            if (back.reads != kNone) REQUIRE(there[static_cast<std::size_t>(back.reads)]);
          }
          if (at.result != kNone) there[static_cast<std::size_t>(at.result)] = true;
        }
        for (int stage = 0; stage < pp; ++stage)
          CHECK(by_stage[static_cast<std::size_t>(stage)] ==
                schedule_slots(one.schedule, stage, pp, one.chunks, m, one.paired));
      }
}

TEST_CASE("the orders kept are those that a layout would get anew") {
  SlotOrders orders;
  const auto same = [](const SlotOrder& a, const SlotOrder& b) {
    if (a.slots().size() != b.slots().size() || a.results() != b.results()) return false;
    for (std::size_t i = 0; i < a.slots().size(); ++i)
      if (a.slots()[i].slot != b.slots()[i].slot || a.slots()[i].reads != b.slots()[i].reads ||
          a.slots()[i].hop != b.slots()[i].hop)
        return false;
    return true;
  };
  for (int round = 0; round < 3; ++round)
    for (int pp = 2; pp <= 12; ++pp)
      for (const int chunks : {2, 4}) {
        const Choices c = pipeline(Schedule::interleaved, pp, chunks, false);
        for (const int m : {pp, 2 * pp}) {
          REQUIRE(same(orders.of(c, m), SlotOrder(c, m)));
          CHECK(same(orders.of(c, m), SlotOrder(c, m)));
        }
      }
}

}  // namespace
}  // namespace orrery::planner
