#include "base/answer/record.h"

#include <catch2/catch.hpp>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"

namespace orrery {
namespace {

struct Part {
  std::string name;
  double weight_bytes = 0;
};
struct Whole {
  int count = 3;
  std::uint64_t most = 18'000'000'000'000'000'000ULL;
  bool whole = true;
  std::optional<double> share;
  const Part* best = nullptr;
  std::vector<Part> parts;
  std::vector<std::string> words = {"a", "b"};
  std::map<std::string, double> rates = {{"x", 0.5}};
  std::map<std::string, Part> named;
};

const Record<Part>& part_record() {
  static const auto record =
      Record<Part>("part")
          .value("name", "by which it is known", [](const Part& p) -> const std::string& { return p.name; })
          .value("weight_bytes", "of it", [](const Part& p) { return p.weight_bytes; });
  return record;
}

Record<Whole> whole_record(int more) {
  Record<Whole> r({}, "items");
  r.value("count", "of all", [more](const Whole& w) { return w.count + more; })
      .value("most", "at most", [](const Whole& w) { return w.most; })
      .value("whole", "or in parts", [](const Whole& w) { return w.whole; })
      .value("share", "of it", [](const Whole& w) { return w.share; })
      .nullable("share_or_null", "of it", [](const Whole& w) { return w.share; })
      .value("words", "said", [](const Whole& w) { return w.words; })
      .value("rates", "by name", [](const Whole& w) { return w.rates; })
      .object("best", "of the parts", part_record(), [](const Whole& w) { return w.best; })
      .list("parts", "all", part_record(), [](const Whole& w) -> const std::vector<Part>& { return w.parts; })
      .map("named", "by name", part_record(), [](const Whole& w) { return w.named; })
      .given("any", "that a program knows", {{"type", "object"}, {"x-unit", ""}}, [](const Whole&) {
        return Json{{"k", 1}};
      });
  return r;
}

TEST_CASE("an object has its fields in their order, and none that is absent") {
  Whole whole;
  CHECK(whole_record(4).json(whole).dump() ==
        R"({"count":7,"most":18000000000000000000,"whole":true,"share_or_null":null,"words":["a","b"],)"
        R"("rates":{"x":0.5},"parts":[],"named":{},"any":{"k":1}})");
  const Part part = {"p", 2};
  whole.share = 0.25;
  whole.best = &part;
  whole.parts = {part, {"q", 3}};
  whole.named = {{"z", part}};
  const Json json = whole_record(0).json(whole);
  CHECK(json["share"] == 0.25);
  CHECK(json["share_or_null"] == 0.25);
  CHECK(json["best"].dump() == R"({"name":"p","weight_bytes":2.0})");
  CHECK(json["parts"][1]["name"] == "q");
  CHECK(json["named"]["z"] == json["best"]);
}

TEST_CASE("a schema says of each field what it is, its unit and whether it may be absent") {
  Json definitions = Json::object();
  const Json schema = whole_record(0).schema(definitions);
  CHECK(schema["required"] ==
        Json({"count", "most", "whole", "share_or_null", "words", "rates", "parts", "named", "any"}));
  const Json& fields = schema["properties"];
  CHECK(fields["count"] == Json({{"type", "integer"}, {"description", "of all"}, {"x-unit", "items"}}));
  CHECK(fields["share_or_null"]["type"] == Json({"number", "null"}));
  CHECK(fields["words"]["items"]["type"] == "string");
  CHECK(fields["rates"]["additionalProperties"]["type"] == "number");
  CHECK(fields["parts"]["items"]["$ref"] == "#/$defs/part");
  CHECK(fields["named"]["additionalProperties"]["$ref"] == "#/$defs/part");
  CHECK_FALSE(fields["any"].contains("x-unit"));
  CHECK(definitions["part"]["properties"]["weight_bytes"]["x-unit"] == "bytes");
}

TEST_CASE("another record's fields stand among these, and are optional where what has them is") {
  Record<Whole> r;
  r.with(part_record(), [](const Whole& w) { return w.best; });
  Whole whole;
  CHECK(r.json(whole).dump() == "{}");
  CHECK(r.required().empty());
  const Part part = {"p", 2};
  whole.best = &part;
  CHECK(r.json(whole)["name"] == "p");
}

TEST_CASE("a field that says nothing of what it means is our fault") {
  CHECK_THROWS_AS(Record<Part>().value("name", "", [](const Part& p) { return p.name; }), InternalError);
}

}  // namespace
}  // namespace orrery
