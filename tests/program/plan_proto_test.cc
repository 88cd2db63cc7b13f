#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "program/lower/lowering.h"
#include "program/plan.h"
#include "proto/plan.pb.h"
#include "proto/textproto.h"
#include "topologies/readers/catalog.h"
#include "workloads/readers/catalog.h"

using namespace orrery;

namespace {

Plan catalog_plan() {
  auto job = std::make_shared<Job>();
  job->workload = load_workload("gpt2");
  job->cluster = with_devices(load_cluster("dgx-a100"), 8);
  job->runtime = catalog_runtime("megatron-core");
  job->training.global_batch = 16;
  job->training.seq_len = 1024;
  job->training.optimizer = Optimizer::adamw;
  job->training.learning_rate = 0.1;  // no finite binary fraction
  Choices choices;
  choices.tp = 2;
  choices.pp = 2;
  choices.dp = 2;
  choices.zero = 1;
  choices.sequence_parallel = true;
  choices.stage_layers = {5, 7};
  choices.recompute = Recompute::full;
  choices.recompute_layers = 2;
  choices.bucket_bytes = 1.0 / 3 * 1e8;
  choices.order = {Dimension::tp, Dimension::dp, Dimension::cp, Dimension::ep, Dimension::pp};
  return {std::move(job), choices};
}

std::string text_of(const Plan& plan) {
  proto::Plan message;
  to_proto(plan, &message);
  return to_textproto(message);
}

Plan parse(const std::string& text) {
  proto::Plan message;
  parse_textproto(text, "plan.textproto", &message);
  return plan_from_proto(message, "plan.textproto", text);
}

std::string refusal(std::string text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  REQUIRE(at != std::string::npos);
  text.replace(at, from.size(), to);
  try {
    parse(text);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a plan keeps which modules are run again, and names one that there is none of") {
  Plan plan = catalog_plan();
  plan.choices.recompute = Recompute::selective;
  plan.choices.recompute_layers = 0;
  plan.choices.recompute_modules = modules_from_names("core_attn,layernorm,mlp");
  const std::string text = text_of(plan);
  CHECK(parse(text).choices == plan.choices);
  CHECK_THAT(text, Catch::Contains("recompute: \"selective\""));
  CHECK_THAT(refusal(text, "recompute_modules: \"mlp\"", "recompute_modules: \"sideways\""),
             Catch::Contains("'sideways'") && Catch::Contains("mla_up_proj"));
  CHECK_THAT(refusal(text, "recompute_modules: \"mlp\"", "recompute_modules: \"moe_act\""),
             Catch::Contains("gpt2 has no experts"));
}

TEST_CASE("a plan survives its file exactly") {
  const Plan plan = catalog_plan();
  check_plan(plan);
  const std::string text = text_of(plan);
  const Plan back = parse(text);
  CHECK(back.choices == plan.choices);
  CHECK(back.job->training.learning_rate == 0.1);
  CHECK(back.job->workload.operators.size() == plan.job->workload.operators.size());
  CHECK(back.job->cluster.devices() == 8);
  CHECK(text_of(back) == text);
  // Device profiles are inside: the file needs no catalog.
  CHECK(text.find("a100") != std::string::npos);
  const std::string file =
      (std::filesystem::temp_directory_path() / "orrery_plan_proto_test.textproto").string();
  write_file_atomically(file, text);
  CHECK(text_of(load_plan(file)) == text);
  std::filesystem::remove(file);
}

TEST_CASE("errors of a plan file name the file and the line") {
  const std::string text = text_of(catalog_plan());
  const std::string zero = refusal(text, "\n  zero: 1", "\n  zero: 7");
  CHECK(zero.find("plan.textproto:") == 0);
  CHECK(zero.find("`zero` 7") != std::string::npos);
  CHECK(refusal(text, "schedule: \"1f1b\"", "schedule: \"2f2b\"").find("unknown schedule '2f2b'") !=
        std::string::npos);
  CHECK(refusal(text, "global_batch: 16", "global_batch: 17").find("`global_batch` 17") != std::string::npos);
  CHECK(refusal(text, "order: \"tp\"", "order: \"dp\"").find("`order`") != std::string::npos);
  CHECK_THROWS_AS(parse("choices { tp: 1 }"), UserError);
  CHECK_THROWS_AS(parse("choices { tpp: 1 }"), UserError);
  CHECK_THROWS_AS(load_plan("/nonexistent/plan"), UserError);
}

TEST_CASE("errors inside a plan's workload, cluster and runtime name the line of the field") {
  const std::string text = text_of(catalog_plan());
  for (const std::string field : {"hidden", "memory_bytes", "kernel_launch_s"}) {
    const std::string before = text.substr(0, text.find(field + ": "));
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    CHECK_THAT(refusal(text, field + ": ", field + ": -"),
               Catch::StartsWith(fmt::format("plan.textproto:{}: ", line)) && Catch::Contains(field));
  }
}

TEST_CASE("every model of the catalog lowers to sound programs") {
  for (const WorkloadEntry& entry : catalog_workloads()) {
    CAPTURE(entry.name);
    auto job = std::make_shared<Job>();
    job->workload = load_workload(entry.name);
    job->cluster = with_devices(load_cluster("dgx-a100"), 4);
    job->runtime = catalog_runtime("megatron-core");
    job->training.global_batch = 2;
    job->training.seq_len = job->workload.default_seq_len > 0 ? 512 : 0;
    Choices choices;
    choices.pp = job->workload.layers > 1 ? 2 : 1;
    const auto& model = job->workload.transformer;
    const bool one_group = model && model->state_space && model->state_space->groups % 2 != 0;
    choices.tp = model && model->heads % 2 == 0 && !one_group ? 2 : 1;
    choices.dp = 4 / choices.pp / choices.tp;
    choices.sequence_parallel = choices.tp > 1;
    choices.zero = 1;
    const Plan plan{job, choices};
    check_plan(plan);
    std::vector<Program> programs;
    for (int rank = 0; rank < choices.world(); ++rank) programs.push_back(lower(plan, rank));
    CHECK_NOTHROW(verify_programs(programs));
  }
}
