#include "program/schedule.h"

#include <algorithm>
#include <array>
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
// `backward` is that of the inputs where the schedule splits passes. With `paired`, a pair of slots begins
// when both have what they need, and both end together.
double makespan(Schedule schedule, int stages, int chunks, int micro_batches, double forward, double backward,
                double weight, bool paired = false) {
  std::vector<std::vector<Slot>> slots;
  for (int s = 0; s < stages; ++s)
    slots.push_back(schedule_slots(schedule, s, stages, chunks, micro_batches, paired));
  Choices choices;
  choices.schedule = schedule;
  choices.pp = stages;
  choices.interleave = chunks;
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
      const int count = slots[static_cast<std::size_t>(s)][i].with_next ? 2 : 1;
      double ready = free_at[static_cast<std::size_t>(s)];
      double duration = 0;
      bool runs = true;
      for (int of = 0; of < count; ++of) {
        const Slot slot = slots[static_cast<std::size_t>(s)][i + static_cast<std::size_t>(of)];
        const int part = part_of(choices, s, slot.chunk);
        if (slot.kind == SlotKind::forward) {
          duration += forward;
          if (part == 0) continue;
          const auto at = forward_end.find({part - 1, slot.micro_batch, 0});
          runs = runs && at != forward_end.end();
          if (runs) ready = std::max(ready, at->second);
        } else if (slot.kind == SlotKind::backward_weight) {
          duration += weight;
          runs = runs && backward_end.count({part, slot.micro_batch, 0}) > 0;
        } else {
          const bool whole = slot.kind == SlotKind::backward && splits_backward(schedule);
          duration += backward + (whole ? weight : 0);
          runs = runs && forward_end.count({part, slot.micro_batch, 0}) > 0;
          if (part + 1 == parts) continue;
          const auto at = backward_end.find({part + 1, slot.micro_batch, 0});
          runs = runs && at != backward_end.end();
          if (runs) ready = std::max(ready, at->second);
        }
      }
      if (!runs) continue;
      const double end = ready + duration;
      for (int of = 0; of < count; ++of, ++i) {
        const Slot slot = slots[static_cast<std::size_t>(s)][i];
        const int part = part_of(choices, s, slot.chunk);
        if (slot.kind == SlotKind::forward) forward_end[{part, slot.micro_batch, 0}] = end;
        if (slot.kind == SlotKind::backward || slot.kind == SlotKind::backward_input)
          backward_end[{part, slot.micro_batch, 0}] = end;
      }
      free_at[static_cast<std::size_t>(s)] = end;
      moved = true;
    }
  }
  for (std::size_t s = 0; s < slots.size(); ++s) REQUIRE(next[s] == slots[s].size());  // no deadlock
  return *std::max_element(free_at.begin(), free_at.end());
}

// What a pass in two has left is given back by its second half.
int scanned_peak(const std::vector<Slot>& slots) {
  int held = 0;
  int peak = 0;
  for (const Slot& slot : slots) {
    if (slot.kind == SlotKind::forward) peak = std::max(peak, ++held);
    if (slot.kind == SlotKind::backward || slot.kind == SlotKind::backward_weight) --held;
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

TEST_CASE("dualpipe-v is its authors' schedule of four ranks and ten micro-batches") {
  CHECK(text(schedule_slots(Schedule::dualpipe_v, 0, 4, 2, 10), true) ==
        "F0a F1a F2a F3a F4a F5a F6a F0b B0b W0b F1b B1b W1b F2b B2b W2b F3b "
        "F7a B3b F4b B0a F8a B4b F5b B1a F9a B5b F6b B2a "
        "B6b F7b B3a B7b F8b B4a B8b F9b B5a B9b B6a W6a B7a W7a B8a W8a B9a W9a");
  CHECK(text(schedule_slots(Schedule::dualpipe_v, 3, 4, 2, 8), true) ==
        "F0a F0b F1a F1b F2a F2b F3a F3b "
        "F4a B0b F4b B0a F5a B1b F5b B1a F6a B2b F6b B2a F7a B3b F7b B3a "
        "B4b B4a B5b B5a B6b B6a B7b B7a W6b W6a W7b W7a");
}

TEST_CASE("dualpipe-v runs every pass once, in the order of the model, for any number of micro-batches") {
  for (int stages = 2; stages <= 6; ++stages) {
    for (int m = 2 * stages; m <= 4 * stages + 3; ++m) {
      for (const bool paired : {false, true}) {
        CAPTURE(stages, m, paired);
        makespan(Schedule::dualpipe_v, stages, 2, m, 1, 1, 1,
                 paired);  // requires that nothing waits for ever
        for (int stage = 0; stage < stages; ++stage) {
          CAPTURE(stage);
          const auto slots = schedule_slots(Schedule::dualpipe_v, stage, stages, 2, m, paired);
          std::map<std::pair<int, int>, std::array<int, 4>> count;
          std::map<std::pair<int, int>, std::size_t> complete;  // its weights' gradients
          for (std::size_t i = 0; i < slots.size(); ++i) {
            const Slot& slot = slots[i];
            std::array<int, 4>& of = count[{slot.chunk, slot.micro_batch}];
            ++of[static_cast<std::size_t>(slot.kind)];
            if (slot.kind == SlotKind::backward_weight) CHECK(of[2] == 1);
            if (slot.kind == SlotKind::backward || slot.kind == SlotKind::backward_weight)
              complete[{slot.chunk, slot.micro_batch}] = i;
          }
          CHECK(static_cast<int>(count.size()) == 2 * m);
          for (const auto& [at, of] : count) {
            CHECK(of[0] == 1);
            CHECK(of[1] + of[2] == 1);
            CHECK(of[2] == of[3]);
            // What both chunks share is complete with the first one's pass, after the last one's.
            CHECK(complete.at({1, at.second}) < complete.at({0, at.second}));
          }
          int pairs = 0;
          for (std::size_t i = 0; i < slots.size(); ++i) {
            if (!slots[i].with_next) continue;
            ++pairs;
            CHECK(slots[i].kind == SlotKind::forward);
            REQUIRE(i + 1 < slots.size());
            CHECK(slots[i + 1].kind == SlotKind::backward);
            CHECK(slots[i].chunk != slots[i + 1].chunk);
            CHECK(slots[i].micro_batch != slots[i + 1].micro_batch);
          }
          Plan plan;
          plan.choices.schedule = Schedule::dualpipe_v;
          plan.choices.pp = stages;
          plan.choices.interleave = 2;
          plan.choices.overlap_experts = paired;
          CHECK(paired_slots(plan, stage, m) == pairs);
          CHECK((pairs > 0) == paired);
        }
      }
    }
  }
}

TEST_CASE("dualpipe-v's bubble and what it holds are as published, the same on all ranks") {
  // deepseek-ai/DualPipe, README: of 2 p chunks (p - 1)(F&B + B - 3 W), and 2 p + 1 chunks' activations.
  for (int p = 2; p <= 8; ++p) {
    for (const int m : {2 * p, 2 * p + 1, 3 * p, 5 * p + 1}) {
      CAPTURE(p, m);
      const double forward = 1, input = 1, weight = 1;
      const double both = forward + input + weight;
      CHECK(makespan(Schedule::dualpipe_v, p, 2, m, forward, input, weight, true) ==
            Approx(2 * m * both + (p - 1) * (both + (input + weight) - 3 * weight)));
      for (int stage = 0; stage < p; ++stage) {
        CHECK(scanned_peak(schedule_slots(Schedule::dualpipe_v, stage, p, 2, m)) == 2 * p + 1);
        CHECK(peak_in_flight(Schedule::dualpipe_v, stage, p, 2, m) == 2 * p + 1);
      }
    }
  }
}

TEST_CASE("in a V the first stage holds both ends of the model, the last its middle") {
  Choices c;
  c.schedule = Schedule::dualpipe_v;
  c.pp = 4;
  c.interleave = 2;
  CHECK(ends_meet(c));
  CHECK(holds_first_part(c, 0, 0));
  CHECK(holds_last_part(c, 0, 1));
  CHECK(part_of(c, 3, 0) == 3);
  CHECK(part_of(c, 3, 1) == 4);
  for (const Schedule schedule : {Schedule::interleaved, Schedule::dualpipe_v}) {
    c.schedule = schedule;
    for (int part = 0; part < 8; ++part) {
      const ChunkPlace place = place_of_part(c, part);
      CHECK(part_of(c, place.stage, place.chunk) == part);
    }
  }
  CHECK_FALSE(ends_meet([] {
    Choices interleaved;
    interleaved.schedule = Schedule::interleaved;
    interleaved.pp = 4;
    interleaved.interleave = 2;
    return interleaved;
  }()));
}
