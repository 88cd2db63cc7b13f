#include "orrery/json.h"

#include <catch2/catch.hpp>

#include "orrery/published.h"
#include "tests/support/jobs.h"

using namespace orrery;

TEST_CASE("a validation's errors are beside its figures, and absent where nothing was measured") {
  planner::Validation validation;
  validation.predicted_step_time_s = 1.1;
  validation.measured_step_time_s = 1.0;
  validation.by_kind = {{"forward", 0.6, 0.5}, {"input", 0.1, 0}};
  Json json = to_json(validation);
  CHECK(json.at("relative_error").get<double>() == Approx(0.1));
  CHECK(json.at("by_kind")[0].at("relative_error").get<double>() == Approx(0.2));
  CHECK_FALSE(json.at("by_kind")[1].contains("relative_error"));
  CHECK_FALSE(json.contains("machine_pace"));

  validation.pace =
      planner::MachinePace{.before = 0.8, .after = 0.7, .least = 0.7, .most = 0.8, .step_time_s = 1.1};
  json = to_json(validation);
  CHECK(json.at("machine_pace").at("before").get<double>() == 0.8);
  CHECK(json.at("machine_pace").at("relative_error").get<double>() == Approx(0).margin(1e-12));
}

TEST_CASE("a what-if says of each point what it planned or why it could not") {
  planner::Pins eight;
  eight.dp = 8;
  eight.recompute = Recompute::none;
  WhatifRequest request;
  request.varied = {{"global_batch", {"7", "8"}}};
  for (const std::int64_t batch : {7, 8})
    request.points.push_back({{{"global_batch", std::to_string(batch)}},
                              test::make_job("gpt2", "dgx-a100", 8, batch, 128),
                              eight,
                              {}});
  request.goal = {true, 1e9, true};
  const Json json = to_json(whatif(request));
  REQUIRE(json["points"].size() == 2);
  CHECK(json["varied"]["global_batch"] == Json({7, 8}));
  CHECK_THAT(json["points"][0]["refusal"].get<std::string>(), Catch::Contains("batch of 7"));
  CHECK(json["points"][0]["meets"] == false);
  CHECK(json["points"][1]["meets"] == true);
  CHECK(json["points"][1]["dp"] == 8);
  CHECK(json["points"][1]["steps"] == 976563);  // 1e9 tokens in steps of 1,024
  CHECK(json["fastest"] == 1);
}

TEST_CASE("degrees of further forms stand beside a plan's own where it has any") {
  Choices choices;
  choices.dp = 8;
  planner::Evaluation evaluation =
      planner::evaluate({test::make_job("gpt2", "dgx-a100", 8, 8, 128), choices});
  CHECK_FALSE(to_json(evaluation).contains("degrees"));
  evaluation.plan.choices.degrees["rows"] = 2;
  CHECK(to_json(evaluation).at("degrees") == Json{{"rows", 2}});
  CHECK_THAT(planner::describe(evaluation.plan), Catch::Contains(", rows 2,"));
  const auto files = planner::export_plan(evaluation.plan, planner::ExportTarget::megatron);
  CHECK_THAT(files.front().content, Catch::Contains("no rows parallelism; the plan's is 2"));
}

TEST_CASE("published rows as JSON: what is not known has no key") {
  evidence::Published published;
  evidence::PublishedRow step;
  step.file = "steps";
  step.line = 2;
  step.device = "";
  step.devices = 8;
  step.runtime = "jax";
  step.plan = "tp1";
  step.step_s = {1.1, 1.0, 0.1};
  step.fits = true;
  evidence::PublishedRow peak;
  peak.plan = "tp2";
  peak.memory_bytes = {3, 2, 0.5};
  evidence::PublishedRow skipped;
  skipped.device = "A100";
  skipped.skipped = "why";
  published.rows = {step, peak, skipped};
  published.steps.all = evidence::figures({{1.1, 1.0, "a", "tp1"}}, 1);
  published.steps.sources = {{"steps", published.steps.all, {}}};
  const Json json = to_json(published);
  CHECK(json.at("rows")[0].dump() ==
        R"({"file":"steps","line":2,"source":"","model":"","gpu":"","n_gpus":8,"runtime":"jax","plan":"tp1",)"
        R"("predicted_s":1.1,"measured_s":1.0,"relative_error":0.1,"fits":true})");
  CHECK(
      json.at("rows")[1].dump() ==
      R"({"file":"","line":0,"source":"","model":"","plan":"tp2","predicted_bytes":3.0,"measured_bytes":2.0,)"
      R"("memory_kind":"allocated","memory_error":0.5})");
  CHECK(json.at("rows")[2].dump() ==
        R"({"file":"","line":0,"source":"","model":"","gpu":"A100","skipped":"why"})");
  CHECK(json.at("all").at("groups") == 0);
  CHECK(json.at("sources").at("steps").at("skipped") == 1);
  CHECK_FALSE(json.at("sources").at("steps").contains("kind"));
  CHECK_FALSE(json.contains("memory"));
  CHECK_FALSE(json.contains("throughput"));
  CHECK(to_json(evidence::Published{}).at("all").dump() == R"({"rows":0,"skipped":0})");
  CHECK(to_json(evidence::PublishedCollectives{}).at("sources").empty());
}
