#include "base/parallel.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <thread>
#include <vector>

#include "base/error.h"

using namespace orrery;

TEST_CASE("every index is worked on once, whatever the number of threads, and progress is told in order") {
  for (const int jobs : {0, 1, 3, 50}) {
    std::vector<int> seen(20, 0);
    std::vector<int> told;
    const auto caller = std::this_thread::get_id();
    for_each_in_parallel(
        20, jobs, [&](int i) { ++seen[static_cast<std::size_t>(i)]; },
        [&](int done, int count) {
          CHECK(count == 20);
          CHECK(std::this_thread::get_id() == caller);
          told.push_back(done);
        });
    CHECK(seen == std::vector<int>(20, 1));
    REQUIRE(told.size() == 20);
    for (int i = 0; i < 20; ++i) CHECK(told[static_cast<std::size_t>(i)] == i + 1);
  }
  for_each_in_parallel(0, 4, [](int) { FAIL("there is nothing to do"); });
}

TEST_CASE("the failure of the lowest index is thrown when all others have ended") {
  std::atomic<int> ended{0};
  const auto body = [&](int i) {
    ++ended;
    if (i % 2 == 1) throw NoAnswer("of " + std::to_string(i));
  };
  CHECK_THROWS_WITH(for_each_in_parallel(10, 4, body), "of 1");
  CHECK(ended == 10);
}
