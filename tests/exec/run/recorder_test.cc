// What a rank notes of its steps, and how the notes of all become one report.
#include "exec/run/recorder.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>

#include "base/error.h"
#include "exec/run/rank_run.h"
#include "exec/run/run_report.h"
#include "program/lower/lowering.h"
#include "tests/support/jobs.h"

namespace orrery::exec {
namespace {

RankNotes notes_of(std::vector<double> ends_s) {
  RankNotes notes;
  notes.loss.assign(ends_s.size(), 0.5);
  notes.begins_s.assign(ends_s.size(), 0);
  notes.ends_s = std::move(ends_s);
  return notes;
}

}  // namespace

TEST_CASE("a recorder times what begins and ends, and nothing while it is off") {
  const auto device = make_cpu_device();
  StepRecorder recorder(*device, 2);
  const auto step = [&] {
    recorder.communication_begins(1);
    recorder.computation_begins(0);
    recorder.computation_ends();
    recorder.communication_ends(1);
    recorder.step_ends();
  };
  step();
  const std::vector<Interval> first = recorder.intervals();
  CHECK(first[1].start_s <= first[0].start_s);
  CHECK(first[0].start_s <= first[0].end_s);
  CHECK(first[0].end_s <= first[1].end_s);
  recorder.turn(false);
  step();
  CHECK(recorder.intervals()[0].start_s == first[0].start_s);
  CHECK(recorder.intervals()[1].end_s == first[1].end_s);
  recorder.turn(true);
  step();
  CHECK(recorder.intervals()[0].start_s >= first[1].end_s);
}

TEST_CASE("the intervals of the last steps are kept, and which was the first of these is known") {
  KeptSteps kept;
  for (int step = 0; step < KeptSteps::kMost + 3; ++step) {
    const auto at = static_cast<double>(step);
    kept.keep({{at, at + 0.5}});
    CHECK(kept.first() == std::max<std::int64_t>(0, step + 1 - KeptSteps::kMost));
  }
  REQUIRE(static_cast<std::int64_t>(kept.steps().size()) == KeptSteps::kMost);
  CHECK(kept.steps().front().front().start_s == 3);
  CHECK(kept.steps().back().front().end_s == static_cast<double>(KeptSteps::kMost) + 2.5);
}

TEST_CASE("what a rank has noted arrives as it was, and what is cut off is an error") {
  RankNotes notes = notes_of({1, 2});
  notes.report.first_step = 7;
  notes.events = {{3, 1, 2, 0.25, 0.75}};
  const std::string bytes = packed(notes);
  const RankNotes same = unpacked(bytes);
  CHECK(same.report.first_step == 7);
  CHECK(same.loss == notes.loss);
  CHECK(same.ends_s == notes.ends_s);
  REQUIRE(same.events.size() == 1);
  CHECK(same.events[0].rank == 3);
  CHECK(same.events[0].end_s == 0.75);
  for (const std::size_t left : {bytes.size() - 1, bytes.size() / 2, std::size_t{3}})
    CHECK_THROWS_AS(unpacked(std::string_view(bytes).substr(0, left)), InternalError);
}

TEST_CASE("a step ends with its last rank, and busy seconds are of the steps that were kept") {
  const Plan plan{orrery::test::make_job("gpt2", "dgx-a100", 1, 1, 16), Choices{}};
  const std::vector<Program> programs = {lower(plan, 0)};
  const std::vector<Instruction>& all = programs[0].instructions;
  const auto computes = std::find_if(all.begin(), all.end(), [](const Instruction& instruction) {
    return instruction.op == Op::compute && instruction.compute == ComputeKind::forward;
  });
  const auto at = static_cast<std::uint32_t>(computes - all.begin());
  for (const int steps : {3, 1000}) {
    // Rank 0's clock began at 100; each step takes a second, a quarter of it a forward pass.
    RankNotes notes = notes_of({});
    notes.report.begin_s = 100;
    const int first_kept = std::max(0, steps - static_cast<int>(KeptSteps::kMost));
    for (int step = 0; step < steps; ++step) {
      notes.loss.push_back(0.5);
      notes.begins_s.push_back(0);
      notes.ends_s.push_back(101 + step);
      if (step >= first_kept) notes.events.push_back({0, step, at, 100.0 + step, 100.25 + step});
    }
    RankNotes late = notes;
    late.events.clear();
    for (double& end_s : late.ends_s) end_s += 0.125;
    const Merged merged = merge(plan, {notes, late});
    CHECK(merged.loss.front() == 1.0);
    CHECK(merged.step_ends_s.front() == 1.125);
    CHECK(step_times(merged) == std::vector<double>(static_cast<std::size_t>(steps) - 1, 1.0));
    const auto busy = busy_by_kind(merged, {programs[0], programs[0]});
    CHECK(busy[0].at(std::string(kind_of(*computes))) == Approx(0.25));
    CHECK(busy[1].empty());
  }
}

TEST_CASE("a step's loss is that of the batches that are known") {
  // Three batches a step, each a third of its mean: all known, one lost with its worker, all lost.
  std::vector<double> losses = {3, 2, 0, 1.5};
  spread_losses(losses, {3, 2, 0, 3}, 3);
  CHECK(losses == std::vector<double>{3, 3, 3, 1.5});
}

}  // namespace orrery::exec
