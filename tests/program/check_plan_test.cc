#include <catch2/catch.hpp>

#include "base/error.h"
#include "program/plan.h"
#include "tests/support/small_plans.h"

using namespace orrery;
using orrery::test::SmallModel;

namespace {

std::string refusal(const Plan& plan) {
  try {
    check_plan(plan);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

std::string refusal(const Choices& choices, std::int64_t micro_batches = 4, const SmallModel& model = {}) {
  return refusal(test::small_plan(choices, micro_batches, model));
}

bool mentions(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a sound plan passes") {
  CHECK(refusal(Choices{}) == "");
  Choices choices;
  choices.tp = 2;
  choices.pp = 2;
  choices.dp = 2;
  choices.sequence_parallel = true;
  choices.zero = 1;
  CHECK(refusal(choices) == "");
}

TEST_CASE("what a model has not is not asked of it") {
  Choices dropping;
  dropping.capacity_factor = 1.5;
  CHECK(mentions(refusal(dropping), "`capacity_factor` 1.5: small has no experts"));
  SmallModel experts;
  experts.experts = 4;
  CHECK(refusal(dropping, 4, experts) == "");
  Choices again;
  again.recompute = Recompute::full;
  again.recompute_layers = test::small_plan(again, 4).job->workload.layers;
  CHECK(refusal(again) == "");
  ++again.recompute_layers;
  CHECK(mentions(refusal(again), " layers (expected at most "));
}

TEST_CASE("tensor ranks share experts in equal parts") {
  SmallModel experts;
  experts.experts = 4;
  const auto with = [](int tp, int etp) {
    Choices choices;
    choices.tp = tp;
    choices.etp = etp;
    return choices;
  };
  CHECK(refusal(with(2, 2), 4, experts) == "");
  CHECK(refusal(with(4, 2), 4, experts) == "");
  CHECK(refusal(with(2, 2)) == "`etp` 2: small has no experts (expected `etp` 1)");
  CHECK(
      refusal(with(2, 4), 4, experts) ==
      "`etp` 4: does not divide 2 tensor ranks (expected a divisor of `tp`, whose ranks share each expert)");
  experts.hidden = 12;
  Plan plan = test::small_plan(with(4, 4), 4, experts);
  const auto job = std::make_shared<Job>(*plan.job);
  job->workload.transformer->moe->expert_ffn_hidden = 42;
  plan.job = job;
  CHECK(
      refusal(plan) ==
      "`etp` 4: does not divide 42 hidden features of an expert (expected a divisor of the experts' width)");
  Choices spread = with(4, 2);
  spread.sequence_parallel = true;
  spread.ep = 4;  // only two of the tensor ranks have tokens of their own
  CHECK(mentions(refusal(spread, 4, experts), "`ep` 4: does not divide tp / etp x dp x cp = 2"));
}

TEST_CASE("dualpipe-v has two chunks a stage and two micro-batches for each stage at least") {
  Choices choices;
  choices.schedule = Schedule::dualpipe_v;
  choices.interleave = 2;
  choices.pp = 2;
  CHECK(refusal(choices, 4) == "");
  CHECK(refusal(choices, 5) == "");
  CHECK(refusal(choices, 3) ==
        "`schedule` dualpipe-v with `pp` 2: 3 micro-batches (expected at least 4, twice the stages)");
  choices.interleave = 1;
  CHECK(refusal(choices, 4) ==
        "`schedule` dualpipe-v with `interleave` 1 (expected `interleave` 2: a stage's model chunks lie in a "
        "V)");
  choices.interleave = 2;
  choices.pp = 1;
  CHECK(mentions(refusal(choices, 4), "`schedule` dualpipe-v with `pp` 1"));
  choices.pp = 4;
  CHECK(mentions(refusal(choices, 8), "more parts than the 4 layers"));
}

TEST_CASE("a pipeline's ends may have no layer, which its other parts must") {
  Choices choices;
  choices.pp = 3;
  choices.stage_layers = {0, 4, 0};
  CHECK(refusal(choices) == "");
  choices.stage_layers = {2, 0, 2};
  CHECK(refusal(choices) == "`stage_layers`: stage 1 has no layer (expected at least one layer a stage)");
  choices.schedule = Schedule::interleaved;
  choices.pp = 2;
  choices.interleave = 3;
  choices.stage_layers = {0, 1, 1, 1, 1, 0};
  CHECK(refusal(choices) == "");
  choices.stage_layers = {};
  CHECK(mentions(refusal(choices), "more parts than the 4 layers"));
}

TEST_CASE("tensor parallelism must divide the heads") {
  Choices choices;
  choices.tp = 3;
  CHECK(refusal(choices) ==
        "`tp` 3: does not divide the 4 attention heads (expected a divisor of heads and kv heads, 4 and 4)");
}

TEST_CASE("every impossible choice is refused by its option") {
  const auto refused = [](auto change, std::string_view option, std::int64_t micro_batches = 4) {
    Choices choices;
    change(choices);
    const std::string text = refusal(choices, micro_batches);
    CAPTURE(option, text);
    CHECK(mentions(text, option));
    CHECK(mentions(text, "expected"));
    CHECK(!mentions(text, "\n"));
  };
  refused([](Choices& c) { c.tp = 0; }, "`tp` 0");
  refused([](Choices& c) { c.dp = -2; }, "`dp` -2");
  refused([](Choices& c) { c.pp = 5; }, "`pp` 5");
  refused(
      [](Choices& c) {
        c.pp = 2;
        c.stage_layers = {1, 2};
      },
      "`stage_layers` 1,2");
  refused(
      [](Choices& c) {
        c.pp = 2;
        c.stage_layers = {4};
      },
      "`stage_layers` 4");
  refused(
      [](Choices& c) {
        c.pp = 2;
        c.stage_layers = {5, -1};
      },
      "`stage_layers`");
  refused([](Choices& c) { c.sequence_parallel = true; }, "`sequence_parallel` on");
  refused([](Choices& c) { c.interleave = 2; }, "`interleave` 2");
  refused([](Choices& c) { c.overlap_experts = true; }, "`overlap_experts` on with `ep` 1");
  refused([](Choices& c) { c.schedule = Schedule::interleaved; }, "`schedule` interleaved");
  refused(
      [](Choices& c) {
        c.schedule = Schedule::interleaved;
        c.interleave = 2;
        c.pp = 2;
      },
      "3 micro-batches do not divide by `pp` 2", 3);
  refused([](Choices& c) { c.zero = 4; }, "`zero` 4");
  refused([](Choices& c) { c.shard_group = 2; }, "`shard_group` 2: does not divide dp x cp = 1");
  refused(
      [](Choices& c) {
        c.dp = 4;
        c.zero = 1;
        c.shard_group = 3;
      },
      "`shard_group` 3");
  refused([](Choices& c) { c.ep = 2; }, "`ep` 2");
  refused([](Choices& c) { c.cp = 3; }, "`cp` 3");
  refused([](Choices& c) { c.recompute_layers = 2; }, "`recompute` none");
  refused([](Choices& c) { c.recompute_modules = module_bit("mlp"); }, "modules mlp with `recompute` none");
  refused(
      [](Choices& c) {
        c.recompute = Recompute::selective;
        c.recompute_modules = module_bit("mla_up_proj") | module_bit("mlp");
      },
      "has no latent attention");
  refused([](Choices& c) { c.servers = 1; }, "`servers` 1");
  refused([](Choices& c) { c.staleness = 1; }, "`staleness` 1");
  refused([](Choices& c) { c.order[0] = Dimension::pp; }, "`order`");
  refused([](Choices& c) { c.bucket_bytes = -1; }, "`bucket_bytes` -1");
  refused([](Choices& c) { c.degrees["columns"] = 2; }, "'columns'");
  refused([](Choices& c) { c.degrees["tensor"] = 2; }, "'tensor'");  // which has a field
  refused([](Choices& c) { c.degrees[""] = 2; }, "''");
  refused(
      [](Choices& c) {
        c.dp = 2;
        c.replica_batches = {1};
      },
      "replica batches");
  refused(
      [](Choices& c) {
        c.dp = 2;
        c.replica_batches = {1, 2};
      },
      "replica batches add up to 3");
}

TEST_CASE("a batch that does not divide is refused") {
  Plan plan = test::small_plan({}, 4);
  plan.choices.micro_batch = 3;
  CHECK(refusal(plan) ==
        "`global_batch` 4: does not divide by dp 1 x micro-batch 3 (expected a multiple of 3)");
}

TEST_CASE("a world that is not the cluster's is refused where devices are not shared") {
  auto job = test::small_job({}, 8);
  job->cluster.groups.front().node.shared_cores = 0;
  job->cluster.groups.front().node.devices = 4;
  job->cluster.name = "quad";
  Choices choices;
  choices.dp = 8;
  CHECK(mentions(refusal(Plan{job, choices}), "= 8 ranks on the 4 devices of quad"));
  choices.dp = 2;
  CHECK(mentions(refusal(Plan{job, choices}), "leave devices of quad idle"));
  choices.dp = 4;
  CHECK(refusal(Plan{job, choices}) == "");
}

TEST_CASE("layers split evenly give the remainder to the earlier stages") {
  Choices choices;
  choices.pp = 3;
  const Plan plan = test::small_plan(choices);  // 4 layers
  CHECK(layers_of(plan, 0, 0).end == 2);
  CHECK(layers_of(plan, 1, 0).begin == 2);
  CHECK(layers_of(plan, 1, 0).end == 3);
  CHECK(layers_of(plan, 2, 0).end == 4);
  // The embedding belongs to the first stage; final norm, head and the loss's three parts to the last.
  const auto operators = static_cast<int>(plan.job->workload.operators.size());
  CHECK(operators_of(plan, 0, 0).begin == 0);
  CHECK(operators_of(plan, 0, 0).end == 1 + 2 * 10);
  CHECK(operators_of(plan, 1, 0).begin == 1 + 2 * 10);
  CHECK(operators_of(plan, 2, 0).end == operators);
  CHECK(operators_of(plan, 2, 0).begin == operators - 5 - 10);
}

TEST_CASE("model chunks alternate over the stages") {
  Choices choices;
  choices.pp = 2;
  choices.interleave = 2;
  choices.schedule = Schedule::interleaved;
  const Plan plan = test::small_plan(choices);
  CHECK(layers_of(plan, 0, 0).begin == 0);
  CHECK(layers_of(plan, 1, 0).begin == 1);
  CHECK(layers_of(plan, 0, 1).begin == 2);
  CHECK(layers_of(plan, 1, 1).begin == 3);
}

TEST_CASE("names and values are each other's inverse, and unknown names list the known") {
  for (const Schedule value : {Schedule::gpipe, Schedule::one_f_one_b, Schedule::interleaved,
                               Schedule::zero_bubble, Schedule::dualpipe_v})
    CHECK(schedule_from_name(name_of(value)) == value);
  for (const Sync value :
       {Sync::all_reduce, Sync::parameter_server, Sync::async_parameter_server, Sync::single_process})
    CHECK(sync_from_name(name_of(value)) == value);
  for (const Compression value : {Compression::none, Compression::fp16, Compression::int8, Compression::topk})
    CHECK(compression_from_name(name_of(value)) == value);
  for (const Optimizer value : {Optimizer::sgd, Optimizer::momentum, Optimizer::adam, Optimizer::adamw})
    CHECK(optimizer_from_name(name_of(value)) == value);
  for (const Recompute value : {Recompute::none, Recompute::selective, Recompute::full})
    CHECK(recompute_from_name(name_of(value)) == value);
  for (const Dimension value : {Dimension::tp, Dimension::cp, Dimension::ep, Dimension::dp, Dimension::pp})
    CHECK(dimension_from_name(name_of(value)) == value);
  CHECK_THROWS_WITH(schedule_from_name("2f2b"),
                    "unknown schedule '2f2b' (expected one of gpipe, 1f1b, interleaved, zero-bubble, "
                    "dualpipe-v)");
}
