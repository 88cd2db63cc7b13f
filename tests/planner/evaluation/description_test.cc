// A plan in words.
#include <catch2/catch.hpp>

#include "planner/evaluation/evaluation.h"
#include "tests/support/jobs.h"

namespace orrery::planner {
namespace {

TEST_CASE("a plan's words name parts of unequal layers, and the ends that have none") {
  Choices choices;
  choices.pp = 4;
  const auto words = [&](std::vector<int> layers) {
    choices.stage_layers = std::move(layers);
    return describe({test::make_job("gpt2", "dgx-a100", 4, 8, 128), choices});
  };
  const std::string even = words({});
  CHECK(words({3, 3, 3, 3}) == even);
  CHECK(words({2, 3, 4, 3}) == even + ", 2 to 4 layers a stage");
  CHECK(words({4, 4, 4, 0}) == even + ", head a stage of its own");
  choices.schedule = Schedule::interleaved;
  choices.interleave = 2;
  const std::string chunks = words({});
  CHECK(words({0, 2, 2, 2, 2, 2, 2, 0}) == chunks + ", embedding and head chunks of their own");
  CHECK(words({0, 1, 2, 2, 2, 3, 2, 0}) ==
        chunks + ", 1 to 3 layers a chunk, embedding and head chunks of their own");
}

}  // namespace
}  // namespace orrery::planner
