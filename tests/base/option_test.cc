#include "base/option.h"

#include <catch2/catch.hpp>

#include "base/error.h"

namespace orrery {
namespace {

TEST_CASE("an option's key, its name and its flag") {
  const Option count = {.key = "micro_batch", .unit = "N"};
  CHECK(count.name() == "micro-batch");
  CHECK(count.flag() == "--micro-batch");
  CHECK(Option{.key = "workload", .positional = true}.flag() == "WORKLOAD");
  for (const char* said : {"micro_batch", "micro-batch", "--micro-batch", "MICRO-BATCH"})
    CHECK(option_key(said) == "micro_batch");
  CHECK(option_key("--").empty());
}

TEST_CASE("a setting takes what is in its range and names itself when refusing") {
  std::optional<int> steps;
  double rate = 1;
  bool async = false;
  const Setting count = count_option({.key = "steps", .unit = "N"}, steps, {1, 10});
  const Setting number = number_option({.key = "port_rate", .unit = "B/S"}, rate, kPositive);
  const Setting toggle = switch_option({.key = "async"}, async);
  set(count, "10");
  CHECK(steps == 10);
  CHECK_THROWS_WITH(set(count, "11"), "`steps` 11 (expected a whole number from 1 to 10)");
  CHECK_THROWS_WITH(set(count, ""), "`steps` '' (expected a whole number from 1 to 10)");
  CHECK(steps == 10);
  set(number, "2.5e9");
  CHECK(rate == 2.5e9);
  CHECK_THROWS_WITH(set(number, "0"), "`port_rate` 0 (expected a number above 0)");
  for (const char* absurd : {"1e-308", "1e308"}) CHECK_THROWS_AS(set(number, absurd), UserError);
  set(toggle, "on");
  CHECK(async);
  CHECK_THROWS_AS(set(toggle, "perhaps"), UserError);
}

TEST_CASE("a command line has flags where a text quotes its options") {
  int tp = 1;
  std::string workload;
  const std::vector<Setting> options = {count_option({.key = "tp", .unit = "N"}, tp),
                                        count_option({.key = "shard_group", .unit = "N"}, tp),
                                        text_option({.key = "workload", .positional = true}, workload)};
  CHECK(with_flags("`shard_group` 4 with `tp` 2 of `workload`", options) ==
        "--shard-group 4 with --tp 2 of WORKLOAD");
  CHECK(with_flags("`orrery catalog` lists `zero`, not `tp", options) ==
        "`orrery catalog` lists `zero`, not `tp");
  CHECK(with_flags("", options).empty());
}

}  // namespace
}  // namespace orrery
