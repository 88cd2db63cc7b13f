#include <catch2/catch.hpp>

#include "base/error.h"
#include "tests/support/small_plans.h"

using namespace orrery;

namespace {

std::vector<Program> sound() {
  Choices choices;
  choices.tp = 2;
  choices.pp = 2;
  choices.dp = 2;
  choices.zero = 1;
  choices.sequence_parallel = true;
  test::SmallModel model;
  model.layers = 2;
  return test::lower_all(test::small_plan(choices, 2, model));
}

std::string complaint(const std::vector<Program>& programs) {
  try {
    verify_programs(programs);
  } catch (const InternalError& error) {
    return error.what();
  }
  return "";
}

std::size_t find(const Program& program, Op op, std::size_t from = 0) {
  for (std::size_t i = from; i < program.instructions.size(); ++i) {
    if (program.instructions[i].op == op) return i;
  }
  FAIL("no such instruction");
  return 0;
}

}  // namespace

TEST_CASE("sound programs pass") {
  CHECK(complaint(sound()) == "");
}

TEST_CASE("a dependency that is left out is missed") {
  const std::vector<Program> programs = sound();
  int removed = 0;
  for (std::size_t p = 0; p < programs.size(); p += 3) {
    for (std::size_t i = 0; i < programs[p].instructions.size(); ++i) {
      for (std::size_t a = 0; a < programs[p].instructions[i].after.size(); ++a) {
        auto broken = programs;
        auto& after = broken[p].instructions[i].after;
        const auto other = after[a];
        after.erase(after.begin() + static_cast<std::ptrdiff_t>(a));
        CAPTURE(programs[p].rank, i, label_of(programs[p], i), other, label_of(programs[p], other));
        CHECK(complaint(broken) != "");
        ++removed;
      }
    }
  }
  CHECK(removed > 100);
}

TEST_CASE("a message without its other side is found") {
  auto programs = sound();
  const std::size_t i = find(programs[0], Op::exchange);
  programs[0].instructions[i].transfers.clear();
  CHECK(complaint(programs).find("never") != std::string::npos);
}

TEST_CASE("a message of other bytes is found") {
  auto programs = sound();
  programs[0].instructions[find(programs[0], Op::exchange)].transfers[0].bytes += 1;
  CHECK(complaint(programs).find("bytes") != std::string::npos);
}

TEST_CASE("collectives of other kind, bytes or number are found") {
  auto programs = sound();
  const std::size_t i = find(programs[3], Op::collective);
  programs[3].instructions[i].bytes += 4;
  CHECK(complaint(programs).find("differs from rank") != std::string::npos);
  programs = sound();
  programs[3].instructions[i].collective = CollectiveKind::broadcast;
  CHECK(complaint(programs).find("differs from rank") != std::string::npos);
  programs = sound();
  programs[3].instructions[i].sequence = 7;
  CHECK(complaint(programs).find("sequence") != std::string::npos);
}

TEST_CASE("two ranks that wait for each other's message are a deadlock") {
  const auto message = [](int peer, bool send, int tag) {
    Instruction instruction;
    instruction.op = Op::exchange;
    instruction.stream = send ? Stream::pipeline_forward : Stream::pipeline_forward_receive;
    instruction.transfers.push_back({peer, 8, tag, send, {TensorKind::activation, tag, 0}});
    return instruction;
  };
  std::vector<Program> programs(2);
  for (int rank = 0; rank < 2; ++rank) {
    programs[static_cast<std::size_t>(rank)].rank = rank;
    Instruction receive = message(1 - rank, false, 1 - rank);
    Instruction send = message(1 - rank, true, rank);
    send.after = {0};
    programs[static_cast<std::size_t>(rank)].instructions = {receive, send};
  }
  CHECK(complaint(programs).find("deadlock") != std::string::npos);
  for (Program& program : programs) program.instructions[1].after.clear();
  CHECK(complaint(programs) == "");
}

TEST_CASE("collectives in crossed order are a deadlock on one stream") {
  std::vector<Program> programs(2);
  for (int rank = 0; rank < 2; ++rank) {
    Program& program = programs[static_cast<std::size_t>(rank)];
    program.rank = rank;
    program.groups = {{GroupKind::data, {0, 1}}, {GroupKind::world, {0, 1}}};
    for (const int group : {rank, 1 - rank}) {
      Instruction instruction;
      instruction.op = Op::collective;
      instruction.stream = Stream::data;
      instruction.group = group;
      program.instructions.push_back(instruction);
    }
  }
  CHECK(complaint(programs).find("deadlock on streams") != std::string::npos);
}
