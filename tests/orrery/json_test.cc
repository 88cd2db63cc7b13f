#include "orrery/json.h"

#include <catch2/catch.hpp>

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
