#include "base/csv.h"

#include <catch2/catch.hpp>

#include "base/error.h"

using namespace orrery;

TEST_CASE("csv: quoted fields keep commas, quotes and line breaks") {
  const CsvTable table = parse_csv("a,b\r\n1,\"x, \"\"y\"\"\nz\"\n\n2,\n", "t.csv");
  REQUIRE(table.rows.size() == 2);
  CHECK(table.field(table.rows[0], "b") == "x, \"y\"\nz");
  CHECK(table.rows[1].line == 5);
  CHECK(table.field(table.rows[1], "b").empty());
  CHECK(table.field(table.rows[1], "no such column").empty());
}

TEST_CASE("csv: a table that is no table is refused with its line") {
  CHECK_THROWS_AS(parse_csv("", "t.csv"), UserError);
  CHECK_THROWS_WITH(parse_csv("a,b\n1,2\n3\n", "t.csv"), Catch::Contains("t.csv:3"));
  CHECK_THROWS_WITH(parse_csv("a,b\n\"1,2\n", "t.csv"), Catch::Contains("t.csv:2"));
}

TEST_CASE("csv: what is written is read again as it was") {
  const std::vector<std::string> odd = {"1", "x, \"y\"\nz", "", "\"", "TP 8 x PP 4"};
  const CsvTable table = parse_csv(csv_line({"a", "b", "c", "d", "e"}) + csv_line(odd), "t.csv");
  REQUIRE(table.rows.size() == 1);
  CHECK(table.rows[0].fields == odd);
}
