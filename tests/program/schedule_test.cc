#include "program/schedule.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <string>

using namespace orrery;

namespace {

// "F0 F1 B0 …"; chunks as letters after the micro-batch where there are several.
std::string text(const std::vector<Slot>& slots, bool chunks = false) {
  std::string result;
  for (const Slot& slot : slots) {
    if (!result.empty()) result += ' ';
    result += slot.kind == SlotKind::forward ? 'F' : slot.kind == SlotKind::backward_weight ? 'W' : 'B';
    result += std::to_string(slot.micro_batch);
    if (chunks) result += static_cast<char>('a' + slot.chunk);
  }
  return result;
}

// Runs all stages with the given durations and free communication; returns the end of the last slot.
double makespan(Schedule schedule, int stages, int chunks, int micro_batches, double forward, double backward,
                double weight) {
  std::vector<std::vector<Slot>> slots;
  for (int s = 0; s < stages; ++s)
    slots.push_back(schedule_slots(schedule, s, stages, chunks, micro_batches));
  std::map<std::tuple<int, int, int>, double> forward_end;  // part of the model, micro-batch
  std::map<std::tuple<int, int, int>, double> backward_end;
  std::vector<std::size_t> next(slots.size(), 0);
  std::vector<double> free_at(slots.size(), 0);
  const int parts = stages * chunks;
  bool moved = true;
  while (moved) {
    moved = false;
    for (int s = 0; s < stages; ++s) {
      auto& i = next[static_cast<std::size_t>(s)];
      if (i == slots[static_cast<std::size_t>(s)].size()) continue;
      const Slot slot = slots[static_cast<std::size_t>(s)][i];
      const int part = slot.chunk * stages + s;
      double ready = free_at[static_cast<std::size_t>(s)];
      double duration = weight;
      if (slot.kind == SlotKind::forward) {
        duration = forward;
        if (part > 0) {
          const auto at = forward_end.find({part - 1, slot.micro_batch, 0});
          if (at == forward_end.end()) continue;
          ready = std::max(ready, at->second);
        }
      } else if (slot.kind != SlotKind::backward_weight) {
        duration = backward;
        const auto own = forward_end.find({part, slot.micro_batch, 0});
        if (own == forward_end.end()) continue;
        if (part + 1 < parts) {
          const auto at = backward_end.find({part + 1, slot.micro_batch, 0});
          if (at == backward_end.end()) continue;
          ready = std::max(ready, at->second);
        }
      }
      const double end = ready + duration;
      if (slot.kind == SlotKind::forward) forward_end[{part, slot.micro_batch, 0}] = end;
      if (slot.kind == SlotKind::backward || slot.kind == SlotKind::backward_input) {
        backward_end[{part, slot.micro_batch, 0}] = end;
      }
      free_at[static_cast<std::size_t>(s)] = end;
      ++i;
      moved = true;
    }
  }
  for (std::size_t s = 0; s < slots.size(); ++s) REQUIRE(next[s] == slots[s].size());  // no deadlock
  return *std::max_element(free_at.begin(), free_at.end());
}

int scanned_peak(const std::vector<Slot>& slots) {
  const bool split = std::any_of(slots.begin(), slots.end(),
                                 [](const Slot& slot) { return slot.kind == SlotKind::backward_weight; });
  int held = 0;
  int peak = 0;
  for (const Slot& slot : slots) {
    if (slot.kind == SlotKind::forward) peak = std::max(peak, ++held);
    if (slot.kind == (split ? SlotKind::backward_weight : SlotKind::backward)) --held;
  }
  return peak;
}

}  // namespace

TEST_CASE("gpipe runs all forwards, then all backwards in reverse (arXiv 1811.06965, figure 2)") {
  CHECK(text(schedule_slots(Schedule::gpipe, 1, 4, 1, 4)) == "F0 F1 F2 F3 B3 B2 B1 B0");
}

TEST_CASE("1f1b warms up by the stages behind (Narayanan et al., SC'21, figure 4, top)") {
  CHECK(text(schedule_slots(Schedule::one_f_one_b, 0, 4, 1, 8)) ==
        "F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7");
  CHECK(text(schedule_slots(Schedule::one_f_one_b, 2, 4, 1, 8)) ==
        "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6 B7");
  CHECK(text(schedule_slots(Schedule::one_f_one_b, 3, 4, 1, 3)) == "F0 B0 F1 B1 F2 B2");
}

TEST_CASE("1f1b with fewer micro-batches than stages only warms up") {
  CHECK(text(schedule_slots(Schedule::one_f_one_b, 0, 4, 1, 2)) == "F0 F1 B0 B1");
  CHECK(text(schedule_slots(Schedule::one_f_one_b, 0, 1, 1, 1)) == "F0 B0");
}

TEST_CASE("interleaved takes stages micro-batches through each chunk (SC'21, figure 4, bottom)") {
  // Device 1 of 4 with two chunks: 1-4 forward through chunk a, 1-4 through b, and so on.
  CHECK(text(schedule_slots(Schedule::interleaved, 0, 4, 2, 8), true) ==
        "F0a F1a F2a F3a F0b F1b F2b F3b F4a F5a F6a B0b F7a B1b F4b B2b F5b B3b F6b B0a F7b B1a "
        "B2a B3a B4b B5b B6b B7b B4a B5a B6a B7a");
  // Device 4: warm-up of (V - 1) * pp = 4.
  CHECK(text(schedule_slots(Schedule::interleaved, 3, 4, 2, 4), true) ==
        "F0a F1a F2a F3a F0b B0b F1b B1b F2b B2b F3b B3b B0a B1a B2a B3a");
}

TEST_CASE("zero-bubble delays weight gradients by the stage (arXiv 2401.10241, figure 3, top)") {
  CHECK(text(schedule_slots(Schedule::zero_bubble, 0, 4, 1, 5)) ==
        "F0 F1 F2 F3 B0 W0 F4 B1 W1 B2 W2 B3 W3 B4 W4");
  CHECK(text(schedule_slots(Schedule::zero_bubble, 3, 4, 1, 5)) ==
        "F0 B0 F1 B1 F2 B2 F3 B3 W0 F4 B4 W1 W2 W3 W4");
}

TEST_CASE("bubbles are the papers' formulas") {
  // Forward 1, backward 2 (input 1 + weight 1); m micro-batches of ideal time 3.
  for (const int p : {1, 2, 4, 8}) {
    const int m = 3 * p;
    CAPTURE(p);
    CHECK(makespan(Schedule::gpipe, p, 1, m, 1, 2, 0) == Approx(3 * m + 3 * (p - 1)));
    CHECK(makespan(Schedule::one_f_one_b, p, 1, m, 1, 2, 0) == Approx(3 * m + 3 * (p - 1)));
    // (p - 1)(F + B - W), arXiv 2401.10241, table 1: a third of 1F1B's where the three take equally long.
    CHECK(makespan(Schedule::zero_bubble, p, 1, m, 1, 1, 1) == Approx(3 * m + (p - 1)));
  }
  for (const int p : {2, 4, 8}) {
    for (const int v : {2, 3, 4}) {
      CAPTURE(p, v);
      const int m = 2 * p;
      // Each chunk takes 1/v of the stage's time; the bubble shrinks by v (SC'21, section 2.2).
      CHECK(makespan(Schedule::interleaved, p, v, m, 1.0 / v, 2.0 / v, 0) ==
            Approx(3 * m + 3.0 * (p - 1) / v));
    }
  }
}

TEST_CASE("more micro-batches never raise the bubble fraction") {
  for (const Schedule schedule : {Schedule::gpipe, Schedule::one_f_one_b, Schedule::zero_bubble}) {
    double last = 1;
    for (int m = 1; m <= 12; ++m) {
      const bool split = schedule == Schedule::zero_bubble;
      const double time = makespan(schedule, 4, 1, m, 1, split ? 1 : 2, split ? 1 : 0);
      const double fraction = 1 - 3 * m / time;
      CHECK(fraction <= last + 1e-12);
      last = fraction;
    }
  }
}

TEST_CASE("slots that are paired are of two micro-batches, after one more warm-up forward") {
  CHECK(text(schedule_slots(Schedule::one_f_one_b, 0, 1, 1, 3, true)) == "F0 F1 B0 F2 B1 B2");
  CHECK(text(schedule_slots(Schedule::interleaved, 1, 2, 2, 4, false), true) ==
        "F0a F1a F0b B0b F1b B1b F2a B0a F3a B1a F2b B2b F3b B3b B2a B3a");
  CHECK(text(schedule_slots(Schedule::interleaved, 1, 2, 2, 4, true), true) ==
        "F0a F1a F0b F1b B0b F2a B1b F3a B0a F2b B1a F3b B2b B3b B2a B3a");
  for (int stages = 1; stages <= 4; ++stages) {
    for (int m = 1; m <= 12; ++m) {
      const Schedule schedule = stages == 1 ? Schedule::one_f_one_b : Schedule::interleaved;
      const int chunks = stages == 1 ? 1 : 2;
      if (m % stages != 0) continue;
      for (int stage = 0; stage < stages; ++stage) {
        CAPTURE(stages, m, stage);
        const auto slots = schedule_slots(schedule, stage, stages, chunks, m, true);
        CHECK(static_cast<int>(slots.size()) == 2 * m * chunks);
        CHECK(peak_in_flight(schedule, stage, stages, chunks, m, true) == scanned_peak(slots));
        for (std::size_t i = 0; i < slots.size(); ++i) {
          if (!slots[i].with_next) continue;
          REQUIRE(i + 1 < slots.size());
          CHECK(slots[i].kind == SlotKind::forward);
          CHECK(slots[i + 1].kind == SlotKind::backward);
          CHECK((slots[i].micro_batch != slots[i + 1].micro_batch || slots[i].chunk != slots[i + 1].chunk));
        }
      }
    }
  }
}

TEST_CASE("every slot stands once, and the peak in flight is what the slots hold") {
  for (const Schedule schedule :
       {Schedule::gpipe, Schedule::one_f_one_b, Schedule::interleaved, Schedule::zero_bubble}) {
    for (int stages = 1; stages <= 6; ++stages) {
      const bool interleaved = schedule == Schedule::interleaved;
      if (interleaved && stages == 1) continue;
      for (int chunks = interleaved ? 2 : 1; chunks <= (interleaved ? 3 : 1); ++chunks) {
        for (int m = 1; m <= 12; ++m) {
          if (interleaved && m % stages != 0) continue;
          for (int stage = 0; stage < stages; ++stage) {
            CAPTURE(static_cast<int>(schedule), stages, chunks, m, stage);
            const auto slots = schedule_slots(schedule, stage, stages, chunks, m);
            const int kinds = schedule == Schedule::zero_bubble ? 3 : 2;
            CHECK(static_cast<int>(slots.size()) == kinds * m * chunks);
            std::map<std::tuple<int, int, int>, int> count;
            for (const Slot& slot : slots) {
              ++count[{static_cast<int>(slot.kind), slot.micro_batch, slot.chunk}];
            }
            CHECK(count.size() == slots.size());
            CHECK(peak_in_flight(schedule, stage, stages, chunks, m) == scanned_peak(slots));
          }
        }
      }
    }
  }
}
