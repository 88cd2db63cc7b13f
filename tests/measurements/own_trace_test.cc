#include <catch2/catch.hpp>

#include "base/error.h"
#include "base/file.h"
#include "measurements/compare/step_kinds.h"
#include "measurements/compare/trace_diff.h"
#include "measurements/kinds.h"
#include "program/timeline.h"

using namespace orrery;
using namespace orrery::measurements;

namespace {

std::vector<RankTrace> read_own(const std::string& text) {
  Measurements all;
  read_trace(Source("own.json", text), {}, &all);
  return all.traces;
}

// Two ranks, a step of a forward pass of `forward_s` and an all-reduce on the tensor stream that begins when
// it is half over.
std::string written(double forward_s) {
  std::vector<Program> programs(2);
  Timeline timeline;
  for (int rank = 0; rank < 2; ++rank) {
    Program& program = programs[static_cast<std::size_t>(rank)];
    program.rank = rank;
    Instruction forward, reduce;
    reduce.op = Op::collective;
    reduce.stream = Stream::tensor;
    reduce.form = Parallelism::tensor;
    program.instructions = {forward, reduce};
    for (int step = 0; step < 3; ++step) {
      const double at = 2.0 * step;
      timeline.events.push_back({rank, step, 0, at, at + forward_s});
      timeline.events.push_back({rank, step, 1, at + forward_s / 2, at + 2});
    }
  }
  return chrome_trace(programs, timeline);
}

}  // namespace

TEST_CASE("own trace: what the writer wrote is read_own back by rank, step, stream and kind") {
  const std::vector<RankTrace> traces = read_own(written(0.5));
  REQUIRE(traces.size() == 2);
  CHECK(traces[1].rank == 1);
  CHECK(traces[1].of_instructions);
  CHECK(traces[1].steps_s == std::vector<double>{2, 2, 2});
  REQUIRE(traces[1].steps.size() == 3);
  const TracedStep& step = traces[1].steps[1];
  CHECK(step.seconds == Approx(2));
  CHECK(step.idle_s == Approx(0).margin(1e-9));
  REQUIRE(step.activities.size() == 2);
  CHECK(step.activities[0].stream == "compute");
  CHECK(step.activities[0].kind == "forward");
  CHECK(step.activities[0].seconds == Approx(0.5));
  CHECK(step.activities[1].stream == "tensor");
  CHECK(step.activities[1].kind == "tensor_comm");
  CHECK(step.activities[1].communication);
  CHECK(step.activities[1].seconds == Approx(1.75));
  const StepKinds kinds = measured_step({&traces[0], &traces[1]});
  CHECK(kinds.at_once_s() == Approx(0.25));
}

TEST_CASE("own trace: what is cut off or edited is named by its line") {
  const std::string text = written(0.5);
  CHECK_THROWS_AS(read_own(text.substr(0, text.size() - 40)), UserError);
  std::string edited = text;
  edited.replace(edited.find("\"dur\""), 5, "\"dxr\"");
  CHECK_THROWS_WITH(read_own(edited), Catch::Contains("own.json:") && Catch::Contains("no event"));
  CHECK_THROWS_WITH(read_own("{}"), Catch::Contains("no trace of a known kind"));
}

TEST_CASE("trace diff: what grew is named first, and by how much") {
  const TraceDiff diff = diff_of(read_own(written(0.5)), read_own(written(0.9)));
  CHECK(diff.ranks == std::vector<int>{0, 1});
  REQUIRE(diff.steps.size() == 3);
  CHECK(diff.relative_difference() == Approx(0).margin(1e-9));
  CHECK(diff.rows.front().kind == "forward");
  CHECK(diff.rows.front().b.seconds - diff.rows.front().a.seconds == Approx(0.4));
  const std::vector<planner::KindComparison> kinds = diff.by_kind();
  CHECK(kinds.front().kind == "forward");
  CHECK(kinds.front().measured_s - kinds.front().predicted_s == Approx(0.4));
  double kinds_s = 0, rows_s = diff.a_idle_s;
  for (const auto& kind : kinds) kinds_s += kind.predicted_s;
  for (const DiffRow& row : diff.rows) rows_s += row.a.seconds;
  CHECK(kinds_s == Approx(rows_s));
  CHECK_THAT(explain(diff), Catch::Contains("forward on compute by 400.00 ms longer"));
  CHECK_THAT(explain(diff_of(read_own(written(0.5)), read_own(written(0.5)))), Catch::Contains("as long as"));
  CHECK_THROWS_AS(diff_of(read_own(written(0.5)), {}), UserError);
}

TEST_CASE("kinds are compared in the detail that both sides have") {
  StepKinds predicted, measured;
  predicted.seconds = measured.seconds = 1;
  predicted.kinds = {{"all_reduce over 8", {true, 1, 0.3}},
                     {"all_reduce over 2", {true, 1, 0.1}},
                     {"norms", {false, 1, 0.6}}};
  measured.kinds = {{"all_reduce", {true, 2, 0.5}}, {"norms", {false, 1, 0.5}}};
  auto rows = compare(predicted, measured);
  CHECK(rows.front().kind == "all_reduce");
  CHECK(rows.front().predicted_s == Approx(0.4));
  measured.kinds = {{"collectives", {true, 2, 0.5}}, {"norms", {false, 1, 0.5}}};
  rows = compare(predicted, measured);
  CHECK(rows.size() == 4);
  CHECK(rows.front().kind == "collectives");
}
