#include "planner/space/space.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "base/error.h"
#include "base/random.h"
#include "planner/evaluation/evaluation.h"
#include "program/lower/lowering.h"
#include "tests/support/jobs.h"

namespace orrery::planner {
namespace {

using test::make_job;

TEST_CASE("divisors are all of them, in order") {
  CHECK(divisors(1) == std::vector<int>{1});
  CHECK(divisors(12) == std::vector<int>{1, 2, 3, 4, 6, 12});
  CHECK(divisors(16) == std::vector<int>{1, 2, 4, 8, 16});
  CHECK(divisors(97) == std::vector<int>{1, 97});
}

TEST_CASE("one device and one sample leave nothing to choose but recomputation") {
  const auto job = make_job("gpt2", "dgx-a100", 1, 1, 128);
  const std::vector<Choices> plans = enumerate(job, {});
  // none, selective, full, and full for the first 1 to 11 of 12 layers
  CHECK(plans.size() == 14);
  for (const Choices& c : plans) {
    CHECK(c.world() == 1);
    CHECK(c.zero == 0);
  }
}

TEST_CASE("the space of two devices counted by hand") {
  const auto job = make_job("gpt2", "dgx-a100", 2, 2, 128);
  Pins pins;
  pins.any_runtime = true;
  pins.recompute = Recompute::none;
  pins.zero = 0;
  pins.overlap_grad_reduce = true;
  pins.cp = 1;
  pins.bucket_bytes = 1e9;
  const std::vector<Choices> plans = enumerate(job, pins);
  std::size_t tensor = 0, pipeline = 0, data = 0;
  for (const Choices& c : plans) {
    tensor += c.tp == 2;
    pipeline += c.pp == 2;
    data += c.dp == 2;
  }
  // tp 2: micro-batch 1 or 2, sequence parallel or not. dp 2: micro-batch 1.
  CHECK(tensor == 4);
  CHECK(data == 1);
  // pp 2: micro-batch 1 (two of them): gpipe, 1f1b, zero-bubble, interleaved 2, 3, 6; micro-batch 2:
  // 1f1b, zero-bubble. The five without interleaving are cut evenly (6, 6), by FLOPs, the head with the last
  // (7, 5), and by what they take, with the loss (one more); with embedding and head counted as layers the
  // cut is the even one.
  std::string listed;
  for (const Choices& c : plans)
    if (c.pp == 2)
      listed += std::string(name_of(c.schedule)) + " " + std::to_string(c.interleave) + " of " +
                std::to_string(c.micro_batch) +
                (c.stage_layers.empty() ? "" : " in " + std::to_string(c.stage_layers.front())) + "; ";
  INFO(listed);
  CHECK(pipeline == 18);
}

TEST_CASE("chunks are cut with embedding and head as layers where they are equal only so") {
  const auto job = make_job("llama3-405b", "dgx-h100", 128, 16, 8192);
  REQUIRE(job->workload.layers == 126);
  Pins pins;
  pins.tp = 8;
  pins.pp = 16;
  pins.schedule = Schedule::interleaved;
  std::map<int, std::set<std::vector<int>>> cuts;
  for (const Choices& c : enumerate(job, pins)) cuts[c.interleave].insert(c.stage_layers);
  std::vector<int> eights(128, 1);
  eights.front() = eights.back() = 0;
  REQUIRE(cuts.contains(8));
  CHECK(cuts[8] == std::set<std::vector<int>>{eights});  // 128 chunks of 126 layers have no even cut
  std::vector<int> fours(64, 2);
  fours.front() = fours.back() = 1;
  CHECK(cuts[4] == std::set<std::vector<int>>{{}, fours});
  CHECK(cuts[7] == std::set<std::vector<int>>{{}});
}

TEST_CASE("every plan of a space passes the check of plans and no two are equal") {
  for (const auto& job :
       {make_job("gpt2", "dgx-a100", 8, 16, 128), make_job("llama3-8b", "dgx-h100", 16, 32, 4096),
        make_job("mixtral-8x7b", "dgx-h100", 16, 16, 4096)}) {
    Pins pins;
    pins.recompute_layers = 0;
    const std::vector<Choices> plans = enumerate(job, pins);
    REQUIRE(plans.size() > 20);
    const CounterRandom random(7, 0);
    for (int i = 0; i < 500; ++i) CHECK_NOTHROW(check_plan(Plan{job, plans[random.bits(i) % plans.size()]}));
    for (std::size_t i = 0; i + 1 < plans.size(); ++i)
      if (plans[i] == plans[i + 1]) FAIL("plan " << i << " twice");
  }
}

// What a rank does, in full: operations, sizes, dependencies, peers.
std::string text_of(const Program& program) {
  std::string text;
  for (const Group& group : program.groups) {
    text += "g" + std::to_string(static_cast<int>(group.kind));
    for (const int rank : group.ranks) text += "," + std::to_string(rank);
  }
  for (const Instruction& i : program.instructions) {
    text += ";" + std::to_string(static_cast<int>(i.op)) + "," + std::to_string(static_cast<int>(i.stream)) +
            "," + std::to_string(static_cast<int>(i.compute)) + "," +
            std::to_string(static_cast<int>(i.collective)) + "," + std::to_string(i.op_begin) + "," +
            std::to_string(i.op_end) + "," + std::to_string(i.micro_batch) + "," + std::to_string(i.group) +
            "," + std::to_string(i.bytes) + "," + std::to_string(i.flops);
    for (const std::uint32_t after : i.after) text += "a" + std::to_string(after);
    for (const Transfer& t : i.transfers)
      text += "t" + std::to_string(t.peer) + "," + std::to_string(t.bytes);
  }
  return text;
}

TEST_CASE("brute force recounts a small space: families count their plans, whose Programs all differ") {
  for (const auto& job :
       {make_job("gpt2", "dgx-a100", 2, 2, 128), make_job("gpt2", "v100-ib100", 2, 4, 128)}) {
    Pins pins;
    pins.recompute = Recompute::none;
    std::int64_t counted = 0;
    for_each_family(job, pins, [&](Family&& family) { counted += family.count(); });
    const std::vector<Choices> plans = enumerate(job, pins);
    CHECK(counted == static_cast<std::int64_t>(plans.size()));
    std::map<std::string, Choices> programs;
    for (const Choices& choices : plans) {
      const Plan plan{job, choices};
      std::string text;
      for (int rank = 0; rank < choices.world(); ++rank) text += text_of(lower(plan, rank)) + "|";
      const auto [at, fresh] = programs.try_emplace(text, choices);
      INFO(describe(plan) << " bucket " << choices.bucket_bytes << " overlap " << choices.overlap_grad_reduce
                          << " like " << describe(Plan{job, at->second}) << " bucket "
                          << at->second.bucket_bytes << " overlap " << at->second.overlap_grad_reduce);
      CHECK(fresh);
    }
  }
}

TEST_CASE("compression, servers and one process are searched where that is asked for, each plan once") {
  const auto job = make_job("gpt2", "dgx-a100", 2, 4, 128);
  Pins pins;
  pins.recompute = Recompute::none;
  pins.zero = 0;
  pins.bucket_bytes = 64e6;
  pins.tp = pins.pp = pins.cp = 1;
  pins.micro_batch = 1;
  const auto count = [&] { return enumerate(job, pins).size(); };
  CHECK(count() == 2);  // reduced beside the backward pass or after it
  pins.search_compression = true;
  CHECK(count() == 8);  // none, fp16, int8, top-k
  pins.search_sync = true;
  // One server or two (one node, two devices), waited for or not, beside the backward pass or after it; one
  // process.
  CHECK(count() == 8 + 4 + 4 + 1);
  std::set<std::string> programs;
  for (const Choices& choices : enumerate(job, pins)) {
    std::string text;
    for (int rank = 0; rank < 2; ++rank) text += text_of(lower(Plan{job, choices}, rank)) + "|";
    CHECK(programs.insert(text).second);
  }
  pins.search_compression = false;
  CHECK(count() == 2 + 4 + 4 + 1);
  pins.sync = Sync::all_reduce;  // a pin wins
  CHECK(count() == 2);
}

TEST_CASE("pins hold in every plan") {
  const auto job = make_job("gpt2-xl", "dgx-a100", 16, 64, 1024);
  Pins pins;
  pins.tp = 5;
  CHECK_THROWS_AS(enumerate(job, pins), UserError);
  pins.tp = 1;
  pins.pp = 4;
  pins.micro_batch = 2;
  pins.schedule = Schedule::one_f_one_b;
  pins.zero = 1;
  for (const Choices& c : enumerate(job, pins)) {
    CHECK(c.tp == 1);
    CHECK(c.pp == 4);
    CHECK(c.dp * c.cp == 4);
    CHECK(c.micro_batch == 2);
    CHECK(c.schedule == Schedule::one_f_one_b);
    CHECK(c.zero == 1);
  }
}

TEST_CASE("contradicting pins are named") {
  const auto job = make_job("gpt2", "dgx-a100", 8, 16, 128);
  const auto message = [&](const Pins& pins) {
    try {
      enumerate(job, pins);
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  Pins pins;
  pins.tp = 4;
  pins.pp = 4;
  CHECK_THAT(message(pins), Catch::Contains("tp*pp*dp*cp = 16"));
  pins = {};
  pins.tp = 8;
  CHECK_THAT(message(pins), Catch::Contains("`tp` 8"));
  pins = {};
  pins.dp = 8;
  pins.micro_batch = 3;
  CHECK_THAT(message(pins), Catch::Contains("dp*micro_batch = 24"));
  pins = {};
  pins.pp = 2;
  pins.stage_layers = {7, 7};
  CHECK_THAT(message(pins), Catch::Contains("12 layers"));
}

}  // namespace
}  // namespace orrery::planner
