// A bounded run of mutations of each target's files; a failure prints the seed that repeats it.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "tests/fuzz/mutate.h"
#include "tests/fuzz/target.h"

namespace orrery {
namespace {

// $ORRERY_FUZZ_SEED and $ORRERY_FUZZ_ITERATIONS widen or repeat a run.
std::uint64_t setting(const char* name, std::uint64_t fallback) {
  const char* value = std::getenv(name);
  return value == nullptr ? fallback : std::strtoull(value, nullptr, 10);
}

void run(const std::vector<fuzz::Target>& targets) {
  const std::uint64_t first = setting("ORRERY_FUZZ_SEED", 1);
  for (const fuzz::Target& target : targets) {
    INFO(target.name);
    const std::vector<std::string> seeds = target.seeds();
    REQUIRE_FALSE(seeds.empty());
    // Some files are of another kind, or refused with a reason: a target that accepts none reads nothing.
    CHECK(std::any_of(seeds.begin(), seeds.end(), target.accepts));
    const std::uint64_t rounds = setting("ORRERY_FUZZ_ITERATIONS", static_cast<std::uint64_t>(target.rounds));
    for (std::uint64_t seed = first; seed < first + rounds; ++seed) {
      const std::string bytes = fuzz::mutate(seeds[seed % seeds.size()], seed);
      INFO("repeat with ORRERY_FUZZ_SEED=" << seed << " ORRERY_FUZZ_ITERATIONS=1");
      CHECK_NOTHROW(target.accepts(bytes));
    }
  }
}

TEST_CASE("fuzz: networks, plans and runtimes") {
  run(fuzz::networks());
}
TEST_CASE("fuzz: clusters, devices and numbers") {
  run(fuzz::clusters());
}
TEST_CASE("fuzz: settings of other systems") {
  run(fuzz::settings());
}
// What is measured is three tests, for one of all of it would be the last that sanitizers wait for.
bool is_log(const fuzz::Target& target) {
  return target.name.ends_with("_log");
}
bool is_trace(const fuzz::Target& target) {
  const std::string_view name = target.name;
  return name == "kineto" || name == "own_trace" || name == "chakra" || name == "nsys";
}
std::vector<fuzz::Target> measured(bool (*wanted)(const fuzz::Target&)) {
  std::vector<fuzz::Target> some;
  for (const fuzz::Target& target : fuzz::measured())
    if (wanted(target)) some.push_back(target);
  REQUIRE_FALSE(some.empty());
  return some;
}
TEST_CASE("fuzz: logs") {
  run(measured(is_log));
}
TEST_CASE("fuzz: traces") {
  run(measured(is_trace));
}
TEST_CASE("fuzz: tables") {
  run(measured([](const fuzz::Target& target) { return !is_log(target) && !is_trace(target); }));
}
TEST_CASE("fuzz: what a run reads") {
  run(fuzz::executor());
}

}  // namespace
}  // namespace orrery
