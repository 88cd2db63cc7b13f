#include "serve/answer.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "base/json.h"
#include "orrery/json.h"
#include "serve/question.h"

using namespace orrery;
using namespace orrery::serve;

namespace {

std::vector<Json> lines_of(const Query& query) {
  std::vector<Json> lines;
  answer(query, [&](std::string_view line) {
    REQUIRE(line.back() == '\n');
    lines.push_back(Json::parse(line));
  });
  return lines;
}

std::vector<std::string> stages_of(const std::vector<Json>& lines) {
  std::vector<std::string> stages;
  for (const Json& line : lines) stages.push_back(line.at("stage"));
  return stages;
}

const Query kSmall = {{"workload", "gpt2"}, {"cluster", "dgx-a100"}, {"gpus", "8"}, {"global_batch", "64"}};

}  // namespace

TEST_CASE("an answer comes in stages, quick ones first") {
  const std::vector<Json> lines = lines_of(kSmall);
  REQUIRE(stages_of(lines) == std::vector<std::string>{"guess", "searched", "drawn", "done"});
  const Json &guessed = lines[0].at("plan"), &searched = lines[1].at("plan"), &drawn = lines[2].at("plan");
  CHECK(guessed.at("step_time_s") == guessed.at("estimate_s"));
  CHECK_FALSE(guessed.contains("beside"));
  const planner::SearchResult found = plan(read_question(kSmall).question);
  CHECK(searched.at("step_time_s").get<double>() == found.plans.front().step_time_s());
  CHECK(searched.at("why") == found.why);
  CHECK(searched.at("choices").size() == found.plans.size());
  CHECK_FALSE(searched.contains("timeline"));
  CHECK(drawn.at("step_time_s").get<double>() == Approx(found.plans.front().step_time_s()));
  CHECK(drawn.at("words") == searched.at("words"));
  CHECK_FALSE(drawn.at("timeline").at("rows").empty());
}

TEST_CASE("with failures the whole run is simulated too") {
  Query query = kSmall;
  query.insert(query.end(),
               {{"mtbf_device_hours", "1000"}, {"amount", "1e10"}, {"checkpoint_bandwidth", "1e9"}});
  const std::vector<Json> lines = lines_of(query);
  REQUIRE(stages_of(lines) == std::vector<std::string>{"guess", "searched", "drawn", "run", "done"});
  const Json& run = lines[3].at("run");
  CHECK(run.at("mtti_s").get<double>() == Approx(1000.0 / 8 * 3600));
  CHECK(run.at("goodput").get<double>() < 1);
}

TEST_CASE("what cannot be answered says why") {
  // 175 billion parameters on one device.
  const std::vector<Json> no =
      lines_of({{"workload", "gpt3-175b"}, {"cluster", "dgx-a100"}, {"gpus", "1"}, {"global_batch", "1"}});
  REQUIRE(stages_of(no) == std::vector<std::string>{"no", "done"});
  CHECK_THAT(no[0].at("text").get<std::string>(), Catch::Contains("GiB"));
  const std::vector<Json> bad =
      lines_of({{"workload", "gpt2"}, {"cluster", "dgx-a100"}, {"gpus", "8"}, {"tp", "7"}});
  REQUIRE(stages_of(bad) == std::vector<std::string>{"bad", "done"});
  CHECK_THAT(bad[0].at("text").get<std::string>(), Catch::Contains("tp*pp*dp*cp = 7"));
}
