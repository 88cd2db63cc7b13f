#include "report/timeline.h"

#include <catch2/catch.hpp>

#include "orrery/orrery.h"
#include "tests/support/jobs.h"

using namespace orrery;

TEST_CASE("streams of many ranks are joined at most to a thousandth of the step, and fewer told instead") {
  planner::Pins pins;
  pins.tp = 2;
  pins.pp = 4;
  pins.micro_batch = 1;
  Question question;
  question.job = test::make_job("gpt2", "dgx-a100", 16, 512, 256);
  question.pins = pins;
  const Plan plan = guess(question).plan;
  sim::SimulationOptions options;
  options.fold = false;
  const sim::Simulation simulation = simulate({plan, options}).evaluation.simulation.value();
  const Json timeline = timeline_json(plan, simulation, false);
  const double step_s = timeline.at("length_s").get<double>();
  CHECK(timeline.at("span_resolution_s").get<double>() > 0);
  CHECK(timeline.at("span_resolution_s").get<double>() <= 1.0001e-3 * step_s);
  REQUIRE(timeline.at("rows").size() == 16);
  std::size_t spans = 0;
  for (const Json& row : timeline.at("rows")) {
    // Who computes most is always told.
    if (row.at("critical") == true) CHECK_FALSE(row.at("lanes").empty());
    for (const Json& lane : row.at("lanes")) {
      const Json& numbers = lane.at("spans");
      spans += numbers.size() / 6;
      // None outlasts the step, and they are in order.
      double at = 0;
      for (std::size_t i = 0; i < numbers.size(); i += 6) {
        CHECK(numbers[i].get<std::int64_t>() >= 0);
        at += numbers[i].get<double>();
      }
      CHECK(at <= kTicks);
    }
  }
  // What is done with each micro-batch has one name.
  for (const Json& label : timeline.at("labels"))
    CHECK(label.get<std::string>().find(" mb0") == std::string::npos);
  CHECK(spans > 1000);
  CHECK(spans <= kMostSpans);
}
