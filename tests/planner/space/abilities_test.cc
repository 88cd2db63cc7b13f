#include "planner/space/abilities.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "base/error.h"
#include "planner/space/space.h"
#include "program/schedule.h"
#include "tests/support/jobs.h"

namespace orrery::planner {
namespace {

using test::make_job;

bool any(const std::vector<Choices>& plans, const std::function<bool(const Choices&)>& which) {
  return std::any_of(plans.begin(), plans.end(), which);
}

TEST_CASE("only what the runtime can run is searched, unless asked otherwise") {
  const auto job = make_job("gpt2", "dgx-a100", 4, 8, 128, "megatron-core");
  const auto unable = [&](const Choices& c) {
    return why_cannot_run(job->runtime, job->workload, c).has_value();
  };
  Pins pins;
  CHECK_FALSE(any(enumerate(job, pins), unable));
  pins.any_runtime = true;
  const auto all = enumerate(job, pins);
  CHECK(any(all, unable));
  CHECK(any(all, [](const Choices& c) { return c.schedule == Schedule::zero_bubble; }));
  CHECK(any(all, [](const Choices& c) { return c.pp > 1 && c.zero == 3; }));
}

TEST_CASE("a pin that the runtime cannot run is searched with whatever else it can") {
  const auto job = make_job("gpt2", "dgx-a100", 4, 8, 128, "megatron-core");
  Pins pins;
  pins.schedule = Schedule::zero_bubble;
  const auto plans = enumerate(job, pins);
  CHECK(any(plans, [](const Choices& c) { return c.pp > 1; }));
  CHECK_FALSE(any(plans, [](const Choices& c) { return c.pp > 1 && c.zero > 1; }));
  Pins sharded;
  sharded.zero = 3;
  CHECK_FALSE(any(enumerate(job, sharded), [](const Choices& c) { return c.pp > 1; }));
  sharded.pp = 2;
  CHECK_FALSE(enumerate(job, sharded).empty());
}

TEST_CASE("a pinned sharding that fits no replicas opens pipelines to it, and no other ability") {
  // 25 heads, and fewer samples than devices: replicas alone cannot be had.
  const auto job = make_job("gpt2-xl", "dgx-a100", 64, 24, 1024, "megatron-core");
  Pins pins;
  pins.zero = 2;
  pins.cp = 1;
  const auto plans = enumerate(job, pins);
  CHECK(any(plans, [](const Choices& c) { return c.pp > 1; }));
  CHECK_FALSE(any(plans, [](const Choices& c) { return c.schedule == Schedule::zero_bubble; }));
}

TEST_CASE("where nothing else can be had, context ranks get fewer tokens") {
  const auto job = make_job("gpt2-xl", "dgx-a100", 64, 24, 1024, "megatron-core");
  Pins pins;
  pins.pp = 1;
  const auto plans = enumerate(job, pins);
  CHECK(any(plans, [](const Choices& c) { return c.dp == 8 && c.cp == 8; }));
  pins.pp.reset();
  CHECK_FALSE(any(enumerate(job, pins), [](const Choices& c) { return c.cp > 1; }));
}

TEST_CASE(
    "chunks in a V are searched where the runtime has them, with two layers and micro-batches a stage") {
  const auto in_a_v = [](const Choices& c) { return c.schedule == Schedule::dualpipe_v; };
  Pins pins;
  pins.recompute = Recompute::none;
  for (const char* without : {"megatron-core", "jax", "nemo", "deepspeed"})
    CHECK_FALSE(any(enumerate(make_job("gpt2", "dgx-a100", 8, 32, 128, without), pins), in_a_v));
  const auto titan = make_job("gpt2", "dgx-a100", 8, 32, 128, "torchtitan");
  titan->runtime.fused_elementwise = false;
  CHECK(any(enumerate(titan, pins), in_a_v));
  const auto job = make_job("gpt2", "dgx-a100", 8, 32, 128, "orrery-gpu");
  const auto plans = enumerate(job, pins);
  CHECK(any(plans, in_a_v));
  for (const Choices& c : plans) {
    if (!in_a_v(c)) continue;
    const Plan plan{job, c};
    CHECK_NOTHROW(check_plan(plan));
    CHECK(c.interleave == 2);
    CHECK(c.pp <= 4);  // of 12 layers, in divisors of 8
    CHECK(plan.micro_batches() >= 2 * c.pp);
  }
  // Who pins it is answered by any runtime.
  pins.schedule = Schedule::dualpipe_v;
  const auto pinned = enumerate(make_job("gpt2", "dgx-a100", 8, 32, 128, "megatron-core"), pins);
  CHECK(any(pinned, [&](const Choices& c) { return c.pp > 1 && in_a_v(c); }));
}

TEST_CASE("a V that cannot be had is refused by what it lacks") {
  const auto refusal = [](Pins pins, int batch) -> std::string {
    pins.schedule = Schedule::dualpipe_v;
    try {
      enumerate(make_job("gpt2", "dgx-a100", 8, batch, 128), pins);
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  };
  Pins pins;
  pins.tp = 1;
  pins.pp = 4;
  pins.micro_batch = 1;
  CHECK(refusal(pins, 16) == "");
  CHECK(refusal(pins, 8) ==
        "`schedule` dualpipe-v with `pp` 4: 4 micro-batches (expected at least 8, twice the stages)");
  Pins deep = pins;
  deep.pp = 8;
  CHECK(refusal(deep, 16).find("more parts than the 12 layers") != std::string::npos);
  Pins chunks = pins;
  chunks.interleave = 3;
  CHECK(refusal(chunks, 16) == "`interleave` 3 contradicts `schedule` dualpipe-v (expected `interleave` 2)");
  chunks.interleave = 2;
  CHECK(refusal(chunks, 16) == "");
  Pins cut = pins;
  cut.stage_layers = std::vector<int>{1, 2, 2, 1, 1, 2, 2, 1};
  CHECK(refusal(cut, 16) == "");
  cut.pp.reset();
  CHECK(refusal(cut, 16) == "");
}

TEST_CASE(
    "data parallelism is all that some runtimes have, and pins of the layout are answered all the same") {
  const auto job = make_job("gpt2", "dgx-a100", 4, 8, 128, "horovod");
  for (const Choices& c : enumerate(job, {})) CHECK((c.dp == 4 && c.zero == 0));
  Pins pins;
  pins.dp = 2;
  const auto plans = enumerate(job, pins);
  REQUIRE_FALSE(plans.empty());
  CHECK(why_cannot_run(job->runtime, job->workload, plans.front()));
}

TEST_CASE(
    "a runtime without sequence parallelism and selective recomputation is offered neither, unless pinned") {
  const auto job = make_job("gpt2", "dgx-a100", 4, 8, 128, "megatron-deepspeed");
  const auto sequence = [](const Choices& c) { return c.sequence_parallel; };
  const auto selective = [](const Choices& c) { return c.recompute == Recompute::selective; };
  const auto plans = enumerate(job, {});
  CHECK(any(plans, [](const Choices& c) { return c.tp > 1; }));
  CHECK_FALSE(any(plans, sequence));
  CHECK_FALSE(any(plans, selective));
  Pins pins;
  pins.sequence_parallel = true;
  pins.recompute = Recompute::selective;
  const auto pinned = enumerate(job, pins);
  CHECK(any(pinned, sequence));
  CHECK(any(pinned, selective));
  REQUIRE(why_cannot_run(job->runtime, job->workload, pinned.front()));
  CHECK_THROWS_AS(
      runtime_from_text("name: \"ours\"\nbased_on: \"nemo\"\nabilities { without: \"speed\" }\n", "ours"),
      UserError);
}

TEST_CASE("whole states on replicas beside other ranks are not offered where the runtime shards them") {
  const auto job = make_job("gpt2", "dgx-a100", 8, 32, 128, "torchtitan");
  const auto whole = [](const Choices& c) {
    return c.zero == 0 && (c.cp > 1 || (c.dp > 1 && c.tp * c.pp * c.ep > 1));
  };
  const auto plans = enumerate(job, {});
  CHECK_FALSE(any(plans, whole));
  CHECK_FALSE(any(
      plans, [&](const Choices& c) { return why_cannot_run(job->runtime, job->workload, c).has_value(); }));
  CHECK(any(plans, [](const Choices& c) { return c.zero == 0 && c.dp == 8; }));
  CHECK(any(plans, [](const Choices& c) { return c.zero > 0 && c.tp > 1; }));
  CHECK(any(plans, [](const Choices& c) { return c.dp == 1 && c.tp > 1; }));
  Pins pins;
  pins.zero = 0;
  pins.tp = 2;
  CHECK(any(enumerate(job, pins), whole));
  CHECK(any(enumerate(make_job("gpt2", "dgx-a100", 8, 32, 128, "megatron-core"), {}), whole));
}

TEST_CASE(
    "schedules that split backward passes are searched where a runtime that compiles none is not told to") {
  auto job = std::make_shared<Job>(*make_job("gpt2", "dgx-a100", 8, 32, 128, "torchtitan"));
  const auto splits = [](const Choices& c) { return c.pp > 1 && splits_backward(c.schedule); };
  REQUIRE(job->runtime.fused_elementwise);
  CHECK_FALSE(any(enumerate(job, {}), splits));
  Choices split;
  split.pp = 2;
  split.schedule = Schedule::zero_bubble;
  CHECK(why_cannot_run(job->runtime, job->workload, split) ==
        "torchtitan runs no zero-bubble schedule with compiled kernels");
  Pins pins;
  pins.schedule = Schedule::zero_bubble;
  CHECK(any(enumerate(job, pins), splits));
  job->runtime.fused_elementwise = false;
  CHECK(any(enumerate(job, {}), splits));
  CHECK_FALSE(why_cannot_run(job->runtime, job->workload, split));
}

TEST_CASE("tensor ranks hold whole sequences only where the runtime does not split them all, or by a pin") {
  const auto whole = [](const Choices& c) { return c.tp > 1 && !c.sequence_parallel; };
  const auto job = make_job("gpt2", "dgx-a100", 8, 32, 128, "torchtitan");
  const auto plans = enumerate(job, {});
  CHECK_FALSE(any(plans, whole));
  CHECK(any(plans, [](const Choices& c) { return c.tp > 1 && c.pp > 1; }));
  CHECK_FALSE(any(
      plans, [&](const Choices& c) { return why_cannot_run(job->runtime, job->workload, c).has_value(); }));
  CHECK(any(enumerate(make_job("gpt2", "dgx-a100", 8, 32, 128, "megatron-core"), {}), whole));
  Pins pins;
  pins.sequence_parallel = false;
  const auto pinned = enumerate(job, pins);
  CHECK(any(pinned, whole));
  Choices alone;
  alone.tp = 2;
  CHECK(why_cannot_run(job->runtime, job->workload, alone) ==
        "torchtitan splits sequences wherever there are tensor ranks");
}

TEST_CASE("experts beside tensor ranks are searched with split sequences where the runtime asks for them") {
  const auto whole = [](const Choices& c) { return c.tp > 1 && !c.sequence_parallel; };
  for (const char* runtime : {"megatron-core", "nemo", "typical"}) {
    CAPTURE(runtime);
    const auto job = make_job("mixtral-8x7b", "dgx-a100", 16, 32, 4096, runtime);
    Pins pins;
    pins.tp = 2;
    pins.pp = 2;
    const auto plans = enumerate(job, pins);
    CHECK_FALSE(plans.empty());
    CHECK_FALSE(any(plans, whole));
    pins.sequence_parallel = false;
    const auto asked = enumerate(job, pins);
    REQUIRE(any(asked, whole));
    CHECK(why_cannot_run(job->runtime, job->workload, asked.front()) ==
          std::string(runtime) + " splits sequences wherever there are tensor ranks beside experts");
  }
}

TEST_CASE("states alone are sharded over groups only where the runtime does so below ZeRO-3, or by a pin") {
  const auto grouped = [](const Choices& c) { return c.zero > 0 && c.zero < 3 && c.hybrid(); };
  const auto job = make_job("gpt2", "dgx-a100", 32, 64, 128, "deepspeed");
  const auto plans = enumerate(job, {});
  CHECK_FALSE(any(plans, grouped));
  CHECK(any(plans, [](const Choices& c) { return c.zero == 3 && c.hybrid(); }));
  Pins pins;
  pins.shard_group = 8;
  pins.zero = 1;
  const auto pinned = enumerate(job, pins);
  REQUIRE(any(pinned, grouped));
  CHECK(why_cannot_run(job->runtime, job->workload, pinned.front()) ==
        "deepspeed shards over groups of replicas under ZeRO-3 alone");
  CHECK(any(enumerate(make_job("gpt2", "dgx-a100", 32, 64, 128, "megatron-core"), {}), grouped));
}

TEST_CASE("gradients are reduced behind a pipeline where the runtime has no other way, unless pinned") {
  const auto beside = [](const Choices& c) { return c.pp > 1 && c.dp > 1 && c.overlap_grad_reduce; };
  const auto job = make_job("gpt2", "dgx-a100", 8, 32, 128, "deepspeed");
  const auto plans = enumerate(job, {});
  CHECK_FALSE(any(plans, beside));
  CHECK(any(plans, [](const Choices& c) { return c.pp > 1 && c.dp > 1 && c.zero == 1; }));
  CHECK(any(plans, [](const Choices& c) { return c.pp == 1 && c.dp > 1 && c.overlap_grad_reduce; }));
  CHECK_FALSE(any(
      plans, [&](const Choices& c) { return why_cannot_run(job->runtime, job->workload, c).has_value(); }));
  Pins pins;
  pins.overlap_grad_reduce = true;
  const auto pinned = enumerate(job, pins);
  const auto asked = std::find_if(pinned.begin(), pinned.end(), beside);
  REQUIRE(asked != pinned.end());
  CHECK(why_cannot_run(job->runtime, job->workload, *asked) ==
        "deepspeed reduces gradients behind a pipeline's last backward pass");
  CHECK(any(enumerate(make_job("gpt2", "dgx-a100", 8, 32, 128, "megatron-core"), {}), beside));
}

TEST_CASE("abilities are part of a profile: read, written, replaced by a file that is based on it") {
  const RuntimeProfile base = catalog_runtime("megatron-core");
  REQUIRE(base.abilities);
  const std::string head = "name: \"ours\"\nbased_on: \"megatron-core\"\n";
  CHECK(runtime_from_text(head, "ours").abilities == base.abilities);
  const auto ours = runtime_from_text(head + "abilities { zero: [2] }\n", "ours");
  CHECK(ours.abilities->zero == std::vector<int>{2});
  CHECK(ours.abilities->schedules.empty());
  CHECK_THROWS_AS(runtime_from_text(head + "abilities { schedule: \"spiral\" }\n", "ours"), UserError);
  CHECK_THROWS_AS(runtime_from_text(head + "abilities { dimension: \"dp\" }\n", "ours"), UserError);
  CHECK_FALSE(why_cannot_run(catalog_runtime("orrery"), make_job("gpt2", "dgx-a100", 8, 8, 128)->workload,
                             Choices{}));
}

}  // namespace
}  // namespace orrery::planner
