#include "base/json.h"

#include <catch2/catch.hpp>

#include "base/error.h"
#include "tests/support/fuzz.h"

using namespace orrery;

TEST_CASE("a JSON error names its line") {
  CHECK(parse_json("{\"a\": [1, 2]}", "f")["a"][1] == 2);
  CHECK_THROWS_WITH(parse_json("{\n\"a\": 1,\n}", "f"), Catch::StartsWith("f:3: is not valid JSON"));
  CHECK_THROWS_AS(parse_json("", "f"), UserError);
}

TEST_CASE("bombs and numbers beyond all bounds are refused") {
  CHECK_THROWS_WITH(parse_json("{\"a\": 1e999}", "f"), Catch::Contains("out of range"));
  CHECK_THROWS_WITH(parse_json(std::string(100'000, '['), "f"), Catch::Contains("nested too deeply"));
  std::string wide = "[0";
  for (int i = 0; i < 1'100'000; ++i) wide += ",0";
  CHECK_THROWS_WITH(parse_json(wide + "]", "f"), Catch::Contains("too many values"));
}

TEST_CASE("the line of a key") {
  CHECK(line_of_key("{\n\"a\": 1,\n\"b\": 2}", "b") == 3);
  CHECK(line_of_key("{\"a\": 1}", "z") == 0);
}

TEST_CASE("what is not said as expected reads as nothing") {
  const Json said = parse_json(R"({"a": 2.5, "b": "x", "c": [1, "y"]})", "f");
  CHECK((number_in(said, "a") == 2.5 && number_in(said, "b") == 0 && number_in(said, "z") == 0));
  CHECK((text_in(said, "b") == "x" && text_in(said, "a").empty() && text_in(said, "z").empty()));
  CHECK((list_in(said, "c").size() == 2 && list_in(said, "a").empty() && list_in(said, "z").empty()));
  CHECK((text_at(said["c"], 1) == "y" && text_at(said["c"], 0).empty() && text_at(said["c"], 2).empty()));
  CHECK((object_in(parse_json(R"({"o": {"k": 1}})", "f"), "o").size() == 1 && object_in(said, "c").empty()));
  CHECK((text_at(said, 0).empty() && text_at(said["b"], 0).empty()));
}

TEST_CASE("damaged JSON is refused, never worse") {
  const std::string sound =
      R"({"model_type": "llama", "hidden_size": 4096, "rope_scaling": {"factor": 8.0}, "x": [null, true]})";
  CHECK(testing::survive(sound, 2000, [](const std::string& text) { parse_json(text, "f"); }) > 1000);
}
