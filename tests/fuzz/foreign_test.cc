// Files that other systems wrote: what they were told, and what they measured. A program of its own: it needs
// most of the product, which CI does not compile under sanitizers (test.sh by hand does).
#include <string_view>

#include "tests/fuzz/run.h"

namespace orrery {
namespace {

TEST_CASE("fuzz: settings of other systems") {
  fuzz::run(fuzz::settings());
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
  fuzz::run(measured(is_log));
}
TEST_CASE("fuzz: traces") {
  fuzz::run(measured(is_trace));
}
TEST_CASE("fuzz: tables") {
  fuzz::run(measured([](const fuzz::Target& target) { return !is_log(target) && !is_trace(target); }));
}

}  // namespace
}  // namespace orrery
