// What is exported is read back as the same plan: of every target that can be read, with plans that differ in
// every choice that the target has.
#include <catch2/catch.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "handover/export.h"
#include "handover/export_common.h"
#include "handover/import.h"
#include "planner/space/space.h"
#include "program/schedule.h"
#include "tests/support/jobs.h"
#include "workloads/fine_tuning.h"

using namespace orrery;
using namespace orrery::planner;

namespace {

struct Variant {
  const char* name;
  int devices;
  std::function<void(Choices&)> change;
};

Plan plan_of(const Variant& variant, const std::string& model) {
  Plan plan{test::make_job(model, "dgx-h100", variant.devices, 128, 2048), {}};
  plan.choices.zero = 1;
  plan.choices.bucket_bytes = 64e6;
  variant.change(plan.choices);
  plan.choices.dp = variant.devices / plan.choices.tp / plan.choices.pp / plan.choices.cp;
  INFO(variant.name);
  check_plan(plan);
  return plan;
}

std::string text_of_file(const std::vector<ExportedFile>& files, const std::string& name) {
  for (const ExportedFile& file : files)
    if (file.name == name) return file.content;
  FAIL("no file " << name);
  return "";
}

// The plan that the pins leave of the job's.
void check_same(const Plan& plan, const Imported& read, bool buckets = true) {
  const Choices& c = plan.choices;
  const Pins& p = read.pins;
  CHECK(p.tp.value_or(1) == c.tp);
  CHECK(p.pp.value_or(1) == c.pp);
  CHECK(p.cp.value_or(1) == c.cp);
  if (p.dp) CHECK(*p.dp == c.dp);
  CHECK(p.ep.value_or(1) == c.ep);
  if (c.ep > 1) CHECK(p.etp.value_or(1) == c.etp);
  CHECK(p.micro_batch == c.micro_batch);
  if (c.pp > 1) CHECK(p.schedule == c.schedule);
  CHECK(p.interleave.value_or(1) == c.interleave);
  CHECK(p.zero == c.zero);
  CHECK(p.recompute == c.recompute);
  CHECK(p.recompute_layers.value_or(0) == c.recompute_layers);
  CHECK(p.recompute_modules.value_or(0) == c.recompute_modules);
  CHECK(p.shard_group.value_or(c.dp * c.cp) == (c.shard_group > 0 ? c.shard_group : c.dp * c.cp));
  if (p.stage_layers) CHECK(*p.stage_layers == layers_by_part(plan));
  if (!c.stage_layers.empty()) CHECK(p.stage_layers.has_value());
  CHECK(p.sequence_parallel.value_or(false) == (c.sequence_parallel && c.tp > 1));
  CHECK(p.overlap_grad_reduce == c.overlap_grad_reduce);
  if (p.order) CHECK(*p.order == c.order);
  if (buckets) CHECK(p.bucket_bytes.value_or(0) == Approx(c.bucket_bytes));
  CHECK(read.global_batch == plan.job->training.global_batch);
  CHECK(read.seq_len.value_or(plan.job->training.seq_len) == plan.job->training.seq_len);
  CHECK(read.precision == plan.job->training.precision);
}

const std::vector<Variant>& of_megatron() {
  static const std::vector<Variant> all = {
      {"data parallel", 16, [](Choices& c) { c.micro_batch = 2; }},
      {"no sharding, nothing overlaps", 16, [](Choices& c) { c.zero = 0, c.overlap_grad_reduce = false; }},
      {"groups of states", 16, [](Choices& c) { c.shard_group = 4; }},
      {"stages", 32,
       [](Choices& c) {
         c.tp = 2, c.pp = 4, c.sequence_parallel = true, c.recompute = Recompute::full,
         c.recompute_layers = 3;
       }},
      {"chosen modules", 16,
       [](Choices& c) {
         c.recompute = Recompute::selective,
         c.recompute_modules = modules_from_names("core_attn,layernorm,mlp");
       }},
      {"uneven stages", 32,
       [](Choices& c) {
         c.pp = 2, c.stage_layers = {17, 15};
       }},
      {"interleaved", 32,
       [](Choices& c) {
         c.pp = 4, c.schedule = Schedule::interleaved, c.interleave = 2, c.recompute = Recompute::full;
       }},
      {"interleaved, some layers again", 32,
       [](Choices& c) {
         c.pp = 4, c.schedule = Schedule::interleaved, c.interleave = 2, c.recompute = Recompute::full;
         c.recompute_layers = 4;  // of a stage, 2 of each chunk
       }},
      {"sequences over ranks, sharded weights", 32,
       [](Choices& c) { c.tp = 2, c.cp = 2, c.zero = 3, c.sequence_parallel = true; }},
  };
  return all;
}

}  // namespace

TEST_CASE("plans return from Megatron-LM's flags as they were") {
  for (const Variant& variant : of_megatron()) {
    const Plan plan = plan_of(variant, "llama3-8b");
    const std::string script = text_of_file(export_plan(plan, ExportTarget::megatron), "launch.sh");
    INFO(variant.name << "\n" << script);
    check_same(plan,
               import_megatron(script.substr(script.find("pretrain_gpt.py") + 15), 32, variant.devices));
  }
}

TEST_CASE("plans return from NeMo's recipe as they were") {
  std::vector<Variant> all = of_megatron();
  all.push_back({"pipeline first", 32, [](Choices& c) {
                   c.tp = 2, c.pp = 2;
                   c.order = {Dimension::tp, Dimension::cp, Dimension::ep, Dimension::pp, Dimension::dp};
                 }});
  for (const Variant& variant : all) {
    Plan plan = plan_of(variant, "llama3-8b");
    for (const Optimizer optimizer : {Optimizer::adam, Optimizer::sgd, Optimizer::momentum})
      for (const bool fused : {true, false}) {
        const auto job = std::make_shared<Job>(*plan.job);
        job->training.optimizer = optimizer;
        job->training.fused_attention = fused;
        plan.job = job;
        const std::string recipe = text_of_file(export_plan(plan, ExportTarget::nemo), "recipe.yaml");
        INFO(variant.name << "\n" << recipe);
        const Imported read = import_nemo(recipe, "recipe.yaml", 32, variant.devices);
        check_same(plan, read);
        CHECK(read.dimensions.size() == dimension_flags().size());
        CHECK(other_dimensions(read, *plan.job->workload.transformer).empty());
        for (const std::string& one : read.ignored) CHECK_THAT(one, !Catch::Contains("is not planned"));
        CHECK(read.optimizer == optimizer);
        CHECK(read.fused_attention == fused);
        CHECK(read.pins.order.value_or(Choices{}.order) == plan.choices.order);
        CHECK(read.runtime.fp32_gradients == plan.job->runtime.fp32_gradients);
        CHECK(read.runtime.clip_gradients == plan.job->runtime.clip_gradients);
        CHECK(read.runtime.overlap_param_gather.value_or(false) ==
              (plan.choices.zero >= 1 && plan.choices.overlap_grad_reduce &&
               plan.job->runtime.overlap_param_gather));
      }
  }
}

TEST_CASE("experts, adapters and what waits in the hosts' memory return from NeMo's recipe") {
  const auto back = [](const Plan& plan) {
    const std::string recipe = text_of_file(export_plan(plan, ExportTarget::nemo), "recipe.yaml");
    INFO(recipe);
    return import_nemo(recipe, "recipe.yaml", 32, 16);
  };
  Plan experts{test::make_job("mixtral-8x7b", "dgx-h100", 16, 16, 2048), {}};
  experts.choices.tp = experts.choices.etp = 2;
  experts.choices.dp = 8;
  experts.choices.ep = 4;
  experts.choices.sequence_parallel = true;
  experts.choices.capacity_factor = 1.5;
  experts.choices.overlap_experts = true;
  check_plan(experts);
  const Imported read = back(experts);
  CHECK(read.pins.ep == 4);
  CHECK(read.pins.etp == 2);
  CHECK(read.pins.capacity_factor == 1.5);
  CHECK(read.pins.overlap_experts == true);

  for (const bool dora : {false, true})
    for (const int targets : {+kAllProjections, kQuery | kKey | kValue | kOutput, kQuery | kValue}) {
      if (dora && targets == (kQuery | kValue)) continue;  // noted: it takes fused matrices whole
      Plan tuned{test::make_job("llama3-8b", "dgx-h100", 16, 16, 2048), {}};
      tuned.choices.dp = 16;
      const auto job = std::make_shared<Job>(*tuned.job);
      FineTuning tuning;
      tuning.rank = 16;
      tuning.alpha = 64;
      tuning.dora = dora;
      tuning.targets = static_cast<std::uint8_t>(targets);
      fine_tune(job->workload, tuning);
      tuned.job = job;
      CHECK(back(tuned).tuning == tuning);
    }

  Plan moved{test::make_job("llama3-8b", "dgx-h100", 16, 16, 2048), {}};
  moved.choices.dp = 16;
  moved.choices.zero = 1;
  const auto job = std::make_shared<Job>(*moved.job);
  set_offload(Offload::optimizer, job.get(), 0.5);
  moved.job = job;
  for (const Imported& read : {back(moved), import_megatron(
                                                [&] {
                                                  const std::string script =
                                                      text_of_file(export_plan(moved, ExportTarget::megatron),
                                                                   "launch.sh");
                                                  return script.substr(script.find("pretrain_gpt.py") + 15);
                                                }(),
                                                32, 16)}) {
    CHECK(read.offload == Offload::optimizer);
    CHECK(read.offloaded_share == 0.5);
  }
}

TEST_CASE("plans return from torchtitan's TOML as they were") {
  std::vector<Variant> all = of_megatron();
  for (Variant& variant : all) {
    const auto before = variant.change;
    variant.change = [before](Choices& c) {
      before(c);
      c.overlap_grad_reduce = true;  // always there
      c.bucket_bytes = 0;
      c.recompute_layers = 0;
      c.recompute_modules = 0;
      if (c.zero == 1) c.zero = c.pp > 1 ? 2 : 3;
      if (c.zero == 0) c.cp = 1;
    };
  }
  all.push_back({"every fifth layer again", 8, [](Choices& c) {
                   c.zero = 3, c.recompute = Recompute::full, c.recompute_layers = 6;
                   c.bucket_bytes = 0;
                 }});
  all.push_back({"zero-bubble", 32, [](Choices& c) {
                   c.pp = 4, c.zero = 2, c.schedule = Schedule::zero_bubble;
                   c.bucket_bytes = 0;
                 }});
  all.push_back({"chunks in a V", 32, [](Choices& c) {
                   c.pp = 2, c.interleave = 2, c.zero = 2, c.schedule = Schedule::dualpipe_v;
                   c.stage_layers = {7, 9, 9, 7};
                   c.bucket_bytes = 0;
                 }});
  for (const Variant& variant : all) {
    const Plan plan = plan_of(variant, "llama3-8b");
    const std::string toml = text_of_file(export_plan(plan, ExportTarget::torchtitan), "train.toml");
    INFO(variant.name << "\n" << toml);
    const Imported read = import_torchtitan(toml, "train.toml", 32, variant.devices);
    check_same(plan, read, false);
    const bool splits =
        plan.choices.pp > 1 && splits_backward(plan.choices.schedule);  // which no compiler does
    CHECK(read.runtime.fused_elementwise == (plan.job->runtime.fused_elementwise && !splits));
  }
}

TEST_CASE("plans return from DeepSpeed's JSON as they were, but for what it cannot say") {
  for (const Variant& variant :
       {Variant{"ZeRO-1", 16, [](Choices& c) { c.micro_batch = 4; }},
        Variant{"ZeRO-3 in groups", 16, [](Choices& c) { c.zero = 3, c.shard_group = 8; }},
        Variant{"tensor ranks, whose batch it does not say", 8,
                [](Choices& c) { c.tp = 2, c.micro_batch = 2, c.zero = 2; }},
        Variant{"ZeRO-2, nothing overlaps", 16,
                [](Choices& c) { c.zero = 2, c.overlap_grad_reduce = false; }},
        Variant{"layers run again", 16, [](Choices& c) { c.zero = 2, c.recompute = Recompute::full; }}}) {
    const Plan plan = plan_of(variant, "llama3-8b");
    const std::string json = text_of_file(export_plan(plan, ExportTarget::deepspeed), "ds_config.json");
    Imported read = import_deepspeed(json, "ds_config.json");
    settle_batch(&read, &read.pins, variant.devices);
    for (const std::string& one : read.ignored) CHECK_THAT(one, !Catch::Contains("is not planned"));
    CHECK_FALSE(read.pins.recompute);  // the script's
    read.pins.recompute = plan.choices.recompute;
    INFO(variant.name << "\n" << json);
    check_same(plan, read);
  }
}
