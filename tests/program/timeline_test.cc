#include "program/timeline.h"

#include <catch2/catch.hpp>

#include "base/json.h"
#include "tests/support/small_plans.h"

using namespace orrery;

namespace {

Instruction compute(ComputeKind kind, std::vector<std::uint32_t> after = {}) {
  Instruction instruction;
  instruction.compute = kind;
  instruction.after = std::move(after);
  return instruction;
}

Instruction collective(Stream stream, Parallelism form, std::vector<std::uint32_t> after = {}) {
  Instruction instruction;
  instruction.op = Op::collective;
  instruction.stream = stream;
  instruction.form = form;
  instruction.after = std::move(after);
  return instruction;
}

// Forward 0-1, tensor all-reduce 1-3, recompute 3-4, nothing until the optimizer 6-7, whose gradient
// reduction ran 2-5; a parameter gather ends the step at 9.
Program hand_made() {
  Program program;
  program.instructions = {
      compute(ComputeKind::forward),        collective(Stream::tensor, Parallelism::tensor, {0}),
      compute(ComputeKind::recompute, {1}), collective(Stream::data, Parallelism::data, {0}),
      compute(ComputeKind::optimizer, {3}), collective(Stream::data, Parallelism::data, {4})};
  return program;
}

Timeline hand_timed() {
  return {{{0, 0, 0, 0, 1},
           {0, 0, 1, 1, 3},
           {0, 0, 2, 3, 4},
           {0, 0, 3, 2, 5},
           {0, 0, 4, 6, 7},
           {0, 0, 5, 7.5, 9}}};
}

}  // namespace

TEST_CASE("the breakdown counts every instant once") {
  const Breakdown result = breakdown(hand_made(), hand_timed(), 0, 0, 9);
  CHECK(result.compute == Approx(1));
  CHECK(result.tensor_comm == Approx(2));
  CHECK(result.recompute == Approx(1));
  // 4-5 waits for the reduction, 5-6 for nothing that is known; 7-7.5 nothing, 7.5-9 the gather.
  CHECK(result.data_comm == Approx(1 + 1.5));
  CHECK(result.optimizer == Approx(1));
  CHECK(result.bubble == Approx(1 + 0.5));
  CHECK(result.total() == Approx(9).epsilon(1e-15));
}

TEST_CASE("an exchange that waits for its peers is a bubble until they come, and not busy") {
  Program program;
  program.instructions = {compute(ComputeKind::forward),
                          collective(Stream::pipeline_forward, Parallelism::pipeline, {0}),
                          compute(ComputeKind::forward, {1})};
  // Issued at 1; the last participant came at 4; there at 6.
  const Timeline timeline{{{0, 0, 0, 0, 1}, {0, 0, 1, 1, 6, 4}, {0, 0, 2, 6, 8}}};
  const Breakdown result = breakdown(program, timeline, 0, 0, 8);
  CHECK(result.bubble == Approx(3));
  CHECK(result.pipeline_comm == Approx(2));
  CHECK(result.compute == Approx(3));
  CHECK(result.total() == Approx(8).epsilon(1e-15));
  CHECK(busy_seconds(program, timeline, 0).at("pipeline_comm") == Approx(2));
  const auto stretches = breakdown_stretches(program, timeline, 0, 0, 8);
  REQUIRE(stretches.size() == 4);
  CHECK(stretches[1].part == &Breakdown::bubble);
  CHECK(stretches[2].part == &Breakdown::pipeline_comm);
}

TEST_CASE("a step of another rank or number has an all-bubble breakdown") {
  const Breakdown result = breakdown(hand_made(), hand_timed(), 1, 2, 5);
  CHECK(result.bubble == 3);
  CHECK(result.total() == 3);
}

TEST_CASE("waiting for a message that waits for another is explained link by link") {
  Program program;
  program.instructions = {compute(ComputeKind::forward), collective(Stream::expert, Parallelism::expert, {0}),
                          collective(Stream::tensor, Parallelism::tensor, {1}),
                          compute(ComputeKind::forward, {2})};
  const Timeline timeline{{{0, 0, 0, 0, 1}, {0, 0, 1, 1, 4}, {0, 0, 2, 5, 7}, {0, 0, 3, 7, 8}}};
  const Breakdown result = breakdown(program, timeline, 0, 0, 8);
  CHECK(result.expert_comm == Approx(3));
  CHECK(result.bubble == Approx(1));  // between the two, peers were late
  CHECK(result.tensor_comm == Approx(2));
  CHECK(result.compute == Approx(2));
}

TEST_CASE("busy seconds add up overlapping work") {
  const auto busy = busy_seconds(hand_made(), hand_timed(), 0);
  CHECK(busy.at("forward") == Approx(1));
  CHECK(busy.at("tensor_comm") == Approx(2));
  CHECK(busy.at("data_comm") == Approx(4.5));
  CHECK(busy.count("pipeline_comm") == 0);
}

TEST_CASE("the trace is valid JSON with a process a rank and an arrow a message") {
  Choices choices;
  choices.pp = 2;
  const Plan plan = test::small_plan(choices, 2);
  const auto programs = test::lower_all(plan);
  Timeline timeline;
  int messages = 0;
  for (const Program& program : programs) {
    for (std::size_t i = 0; i < program.instructions.size(); ++i) {
      const double at = static_cast<double>(i);
      timeline.events.push_back({program.rank, 0, static_cast<std::uint32_t>(i), at, at + 1});
      for (const Transfer& transfer : program.instructions[i].transfers) messages += transfer.send ? 1 : 0;
    }
  }
  const Json trace = parse_json(chrome_trace(programs, timeline), "trace");
  int slices = 0;
  int arrows = 0;
  int processes = 0;
  std::map<std::string, int> named;
  std::map<std::int32_t, double> last_rate;
  double most_rate = 0;
  for (const Json& event : trace["traceEvents"]) {
    const std::string phase = event["ph"];
    slices += phase == "X" ? 1 : 0;
    arrows += phase == "s" ? 1 : 0;
    processes += event["name"] == "process_name" ? 1 : 0;
    if (phase == "s") ++named[event["name"]];
    if (phase != "C") continue;
    CHECK(event["name"] == "communication (bytes/s)");
    double rate = 0;
    for (const Json& of_kind : event["args"]) rate += of_kind.get<double>();
    last_rate[event["pid"].get<std::int32_t>()] = rate;
    most_rate = std::max(most_rate, rate);
  }
  CHECK(slices == static_cast<int>(timeline.events.size()));
  CHECK(messages == 4);  // two micro-batches there, two gradients back
  CHECK(arrows == messages);
  CHECK(processes == 2);
  CHECK(named ==
        std::map<std::string, int>{{"pipeline_comm, rank 0 to 1", 2}, {"pipeline_comm, rank 1 to 0", 2}});
  // Counters come back to nothing; each message here takes a second.
  CHECK(last_rate == std::map<std::int32_t, double>{{0, 0.0}, {1, 0.0}});
  double bytes = 0;
  for (const Program& program : programs)
    for (const Instruction& instruction : program.instructions)
      if (instruction.stream != Stream::compute) bytes = std::max(bytes, instruction.bytes);
  CHECK(most_rate == Approx(bytes));
}

TEST_CASE("counters stand in the trace by name, and a process that is no rank is named") {
  const std::vector<TraceCounter> counters = {
      {"links (bytes/s)", 4, "network", {"network ports", "PCIe"}, {{0.5, {1e9, 0}}, {1.25, {0, 3}}}}};
  const Json trace = parse_json(chrome_trace({}, {}, counters), "trace");
  REQUIRE(trace["traceEvents"].size() == 3);
  CHECK(trace["traceEvents"][0]["args"]["name"] == "network");
  CHECK(trace["traceEvents"][0]["pid"] == 4);
  const Json& first = trace["traceEvents"][1];
  CHECK((first["ph"] == "C" && first["name"] == "links (bytes/s)" && first["pid"] == 4));
  CHECK(first["ts"] == 0.5e6);
  CHECK(first["args"] == Json{{"network ports", 1e9}, {"PCIe", 0}});
  CHECK(trace["traceEvents"][2]["args"]["PCIe"] == 3);
}

TEST_CASE("an empty timeline is a valid trace") {
  const Json trace = parse_json(chrome_trace({}, {}), "trace");
  CHECK(trace["traceEvents"].empty());
}
