#include "serve/lessons.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <string>

#include "base/error.h"

using namespace orrery;
using namespace orrery::serve;

namespace {

Json told(const Query& query) {
  Json result;
  std::string stages;
  lesson(query, [&](std::string_view line) {
    const Json json = Json::parse(line);
    stages += json.at("stage").get<std::string>() + " ";
    if (json.contains("text")) FAIL(json.at("text").get<std::string>());
    if (json.contains("told")) result = json.at("told");
  });
  CHECK(stages == "lesson done ");
  return result;
}

double number(const Json& json, const char* key) {
  return json.at(key).get<double>();
}

}  // namespace

TEST_CASE("lesson: strong scaling has a top that Amdahl's law does not know") {
  const Json answer = told({{"lesson", "amdahl"}, {"network", "1"}});
  const Json& points = answer.at("points");
  REQUIRE(points.size() == 7);
  CHECK(number(points[0], "speedup") == 1);
  CHECK(number(points[1], "speedup") == Approx(2 / (1 + number(answer, "serial_of_two"))));
  const auto best = std::max_element(points.begin(), points.end(), [](const Json& a, const Json& b) {
    return number(a, "speedup") < number(b, "speedup");
  });
  CHECK(number(*best, "devices") < 64);
  CHECK(answer.contains("usl"));
}

TEST_CASE("lesson: bubbles are the formula's or less, and interleaving halves them") {
  const Json plain =
      told({{"lesson", "bubbles"}, {"stages", "4"}, {"micro_batches", "16"}, {"schedule", "1f1b"}});
  CHECK(number(plain, "idle_by_work") < 3.0 / 16);
  CHECK(number(plain, "idle_by_work") > 0.8 * 3.0 / 16);
  CHECK(plain.at("timeline").at("rows").size() == 4);
  const Json chunks =
      told({{"lesson", "bubbles"}, {"stages", "4"}, {"micro_batches", "16"}, {"schedule", "interleaved"}});
  CHECK(number(chunks, "idle_by_work") < 0.75 * number(plain, "idle_by_work"));
  const Json gpipe =
      told({{"lesson", "bubbles"}, {"stages", "4"}, {"micro_batches", "16"}, {"schedule", "gpipe"}});
  CHECK(number(gpipe, "memory_bytes") > 1.3 * number(plain, "memory_bytes"));
}

TEST_CASE("lesson: large vectors take a ring its bytes over the port") {
  const Json answer = told({{"lesson", "ring"}, {"servers", "8"}});
  double most = 0, time_s = 0;
  for (const Json& point : answer.at("ring"))
    if (number(point, "bytes") > most) most = number(point, "bytes"), time_s = number(point, "time_s");
  const double formula_s = 2.0 * 7 / 8 * most / number(answer, "port_bytes_per_s");
  CHECK(time_s > formula_s);
  CHECK(time_s < 1.05 * formula_s);
  CHECK(number(answer.at("tree")[0], "time_s") < number(answer.at("ring")[0], "time_s"));
}

TEST_CASE("lesson: a parameter server's port is the formula's bottleneck") {
  const Json answer = told({{"lesson", "servers"}, {"workers", "8"}});
  const double g_s = number(answer, "gradient_bytes") / number(answer, "port_bytes_per_s");
  const Json& points = answer.at("points");
  REQUIRE(points.size() == 4);
  for (const Json& point : points) {
    const double formula_s = number(answer, "alone_s") + 1.5 * 7 / number(point, "servers") * g_s;
    CHECK(number(point, "step_time_s") == Approx(formula_s).epsilon(0.05));
  }
  CHECK(number(points[0], "step_time_s") > number(answer, "ring_s"));
  CHECK(number(points[3], "step_time_s") < number(answer, "ring_s"));
}

TEST_CASE("lesson: ZeRO shards what the formula says") {
  const Json answer = told({{"lesson", "zero"}, {"devices", "8"}});
  const double parameters = number(answer, "parameters");
  const double bytes_each[] = {18, 6 + 12.0 / 8, 2 + 16.0 / 8, 18.0 / 8};
  for (std::size_t stage = 0; stage < 4; ++stage) {
    const Json& memory = answer.at("stages")[stage];
    const double states =
        number(memory, "weights") + number(memory, "gradients") + number(memory, "optimizer");
    CHECK(states == Approx(bytes_each[stage] * parameters).epsilon(0.02));
  }
}

TEST_CASE("lesson: runs lose what the formula says, least near Young's interval") {
  const Json answer = told({{"lesson", "failures"}});
  const double delta = number(answer, "checkpoint_s"), m = number(answer, "mtti_s");
  double best = 0, best_every_s = 0;
  for (const Json& point : answer.at("points")) {
    const double tau = number(point, "every_s");
    const double formula = 1 / (1 + delta / tau + tau / (2 * m) + number(answer, "down_s") / m);
    CHECK(number(point, "goodput") == Approx(formula).margin(0.02));
    if (number(point, "goodput") > best) best = number(point, "goodput"), best_every_s = tau;
  }
  const double young_s = std::sqrt(2 * delta * m);
  CHECK(best_every_s > young_s / 3);
  CHECK(best_every_s < young_s * 3);
}

TEST_CASE("a lesson takes bounded numbers and nothing else") {
  CHECK_NOTHROW(check_lesson({{"lesson", "zero"}, {"devices", "512"}}));
  for (const Query& bad :
       {Query{}, Query{{"lesson", "none"}}, Query{{"lesson", "zero"}, {"devices", "513"}},
        Query{{"lesson", "zero"}, {"devices", "x"}}, Query{{"lesson", "zero"}, {"workers", "2"}},
        Query{{"lesson", "zero"}, {"schedule", "1f1b"}},
        Query{{"lesson", "bubbles"}, {"schedule", "/etc/passwd"}},
        Query{{"lesson", "amdahl"}, {"network", "nan"}}})
    CHECK_THROWS_AS(check_lesson(bad), UserError);
}
