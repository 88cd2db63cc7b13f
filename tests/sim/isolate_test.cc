#include "sim/isolate.h"

#include <catch2/catch.hpp>
#include <csignal>
#include <cstdlib>

#include "base/error.h"

using namespace orrery;
using sim::run_isolated;
using sim::run_isolated_all;

TEST_CASE("what a child returns arrives, however long") {
  const std::string longer(5'000'000, 'x');
  CHECK(run_isolated([&] { return longer; }) == longer);
  CHECK(run_isolated([] { return std::string(); }).empty());
}

TEST_CASE("an exception of a child is thrown again with its type and text") {
  CHECK_THROWS_AS(run_isolated([]() -> std::string { throw NoAnswer("dead"); }), NoAnswer);
  CHECK_THROWS_AS(run_isolated([]() -> std::string { throw InternalError("broken"); }), InternalError);
  CHECK_THROWS_AS(run_isolated([]() -> std::string { throw std::bad_alloc(); }), InternalError);
  try {
    run_isolated([]() -> std::string { throw UserError("plan", 3, "no such thing", "another"); });
    FAIL("nothing was thrown");
  } catch (const UserError& error) {
    CHECK(std::string(error.what()) == UserError("plan", 3, "no such thing", "another").what());
  }
}

TEST_CASE("a child that dies is an internal error that says how, and the next call works") {
  CHECK_THROWS_WITH(run_isolated([]() -> std::string {
                      std::raise(SIGKILL);
                      return "late";
                    }),
                    Catch::Contains("signal 9"));
  CHECK_THROWS_WITH(run_isolated([]() -> std::string { std::_Exit(7); }), Catch::Contains("exit status 7"));
  CHECK(run_isolated([] { return std::string("alive"); }) == "alive");
}

TEST_CASE("several children give their results in order, whatever ends first") {
  const auto results =
      run_isolated_all(7, 3, [](int index) { return std::string(index % 3 * 100'000 + 1, 'a' + index); });
  REQUIRE(results.size() == 7);
  for (int i = 0; i < 7; ++i) CHECK(results[i] == std::string(i % 3 * 100'000 + 1, 'a' + i));
  std::vector<int> ended;
  run_isolated_all(
      3, 2, [](int) { return std::string(); }, [&](int done, int) { ended.push_back(done); });
  CHECK(ended == std::vector<int>{1, 2, 3});
  CHECK(run_isolated_all(0, 2, [](int) { return std::string(); }).empty());
  CHECK_THROWS_WITH(
      run_isolated_all(3, 2,
                       [](int index) -> std::string { throw InternalError("of " + std::to_string(index)); }),
      Catch::Contains("of 0"));
}
