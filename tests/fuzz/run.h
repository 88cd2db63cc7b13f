// A bounded run of mutations of each target's files; a failure prints the seed that repeats it.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/fuzz/mutate.h"
#include "tests/fuzz/target.h"

namespace orrery::fuzz {

// $ORRERY_FUZZ_SEED and $ORRERY_FUZZ_ITERATIONS widen or repeat a run.
inline std::uint64_t setting(const char* name, std::uint64_t fallback) {
  const char* value = std::getenv(name);
  return value == nullptr ? fallback : std::strtoull(value, nullptr, 10);
}

inline void run(const std::vector<Target>& targets) {
  const std::uint64_t first = setting("ORRERY_FUZZ_SEED", 1);
  for (const Target& target : targets) {
    INFO(target.name);
    const std::vector<std::string> seeds = target.seeds();
    REQUIRE_FALSE(seeds.empty());
    // Some files are of another kind, or refused with a reason: a target that accepts none reads nothing.
    CHECK(std::any_of(seeds.begin(), seeds.end(), target.accepts));
    const std::uint64_t rounds = setting("ORRERY_FUZZ_ITERATIONS", static_cast<std::uint64_t>(target.rounds));
    for (std::uint64_t seed = first; seed < first + rounds; ++seed) {
      const std::string bytes = mutate(seeds[seed % seeds.size()], seed);
      INFO("repeat with ORRERY_FUZZ_SEED=" << seed << " ORRERY_FUZZ_ITERATIONS=1");
      CHECK_NOTHROW(target.accepts(bytes));
    }
  }
}

}  // namespace orrery::fuzz
