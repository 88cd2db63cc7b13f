#include "planner/space/recompute_choice.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "planner/space/abilities.h"
#include "planner/space/pin_options.h"
#include "planner/space/space.h"
#include "tests/support/jobs.h"

namespace orrery::planner {
namespace {

using test::make_job;
using Ladder = std::vector<std::string>;

Ladder ladder(const Job& job) {
  Ladder rungs;
  for (const ModuleSet modules : searched_modules(job)) {
    std::string& rung = rungs.emplace_back();
    for (const std::string& name : names_of(modules)) rung += (rung.empty() ? "" : ",") + name;
  }
  return rungs;
}

TEST_CASE("a runtime that can be told what to run again is searched with a ladder of modules") {
  const auto of = [](const char* model, const char* runtime, bool fused) {
    const auto job = make_job(model, "dgx-h100", 8, 8, 2048, runtime);
    job->training.fused_attention = fused;
    return ladder(*job);
  };
  for (const char* runtime : {"megatron-core", "nemo", "typical"}) {
    CHECK(of("llama3-8b", runtime, true) == Ladder{"mlp"});
    // The attention core alone is what is run again unasked.
    CHECK(of("llama3-8b", runtime, false) == Ladder{"", "core_attn,mlp"});
    CHECK(of("mixtral-8x7b", runtime, true) == Ladder{"layernorm,moe_act", "layernorm,moe"});
    CHECK(of("deepseek-v3", runtime, true) == Ladder{"layernorm,moe_act", "layernorm,mla_up_proj,moe_act",
                                                     "layernorm,mla_up_proj,moe_act,mlp",
                                                     "layernorm,mla_up_proj,mlp,moe"});
  }
  for (const char* runtime : {"torchtitan", "megatron-lm-2022", "horovod", "orrery"})
    CHECK(of("deepseek-v3", runtime, true) == Ladder{""});
  CHECK(ladder(*make_job("resnet50", "dgx-h100", 8, 256, 0)).empty());
}

TEST_CASE("the ladder is searched, each of its rungs once, and not beyond what Megatron-Core runs") {
  const auto job = make_job("mixtral-8x7b", "dgx-h100", 16, 64, 4096);
  Pins pins;
  pins.tp = 1;
  pins.pp = 2;
  pins.micro_batch = 1;
  std::set<ModuleSet> sets, beside;
  for (const Choices& c : enumerate(job, pins)) {
    CHECK((c.recompute == Recompute::selective) == (c.recompute_modules != 0));
    if (c.recompute == Recompute::selective) (c.overlap_experts ? beside : sets).insert(c.recompute_modules);
    CHECK_FALSE(why_cannot_run(job->runtime, job->workload, c));
  }
  const ModuleSet light = modules_from_names("layernorm,moe_act");
  CHECK(sets == std::set<ModuleSet>{light, modules_from_names("layernorm,moe")});
  CHECK(beside == std::set<ModuleSet>{light});  // experts' traffic is not sent again beside another's
  pins.recompute = Recompute::selective;
  for (const Choices& c : enumerate(job, pins)) CHECK(c.recompute_modules == 0);
}

TEST_CASE("modules are pinned by names, whatever the runtime can be told") {
  const PinOption& option = *std::find_if(pin_options().begin(), pin_options().end(),
                                          [](const PinOption& pin) { return pin.option.key == "recompute"; });
  Pins pins;
  REQUIRE(option.read(pins, "selective:layernorm+MLP,core_attn"));
  CHECK(pins.recompute == Recompute::selective);
  CHECK(pins.recompute_modules == modules_from_names("core_attn,layernorm,mlp"));
  for (const char* runtime : {"megatron-core", "horovod"}) {
    const auto job = make_job("gpt2", "dgx-a100", 4, 8, 128, runtime);
    const auto plans = enumerate(job, pins);
    REQUIRE_FALSE(plans.empty());
    for (const Choices& c : plans) CHECK(c.recompute_modules == pins.recompute_modules);
    CHECK(why_cannot_run(job->runtime, job->workload, plans.front()).has_value() ==
          (runtime == std::string("horovod")));
  }
  REQUIRE(option.read(pins, "selective"));
  CHECK(pins.recompute_modules == ModuleSet{0});
  // What a runtime runs again unasked it can be asked for.
  REQUIRE(option.read(pins, "selective:core_attn"));
  const auto job = make_job("gpt2", "dgx-a100", 4, 8, 128, "megatron-lm-2022");
  CHECK_FALSE(why_cannot_run(job->runtime, job->workload, enumerate(job, pins).front()));
}

}  // namespace
}  // namespace orrery::planner
