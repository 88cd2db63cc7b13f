#include "planner/search/agenda.h"

#include <catch2/catch.hpp>

namespace orrery::planner {
namespace {

TEST_CASE("a table is filled with one plan of each choice that it does not have") {
  Candidates candidates;
  for (const int micro_batch : {1, 2, 4})
    for (const double bucket : {1e6, 2e6}) {
      Candidate candidate;
      candidate.choices.micro_batch = micro_batch;
      candidate.choices.bucket_bytes = bucket;
      candidate.expected = candidate.bound = micro_batch + bucket / 1e8;
      candidates.promising.push_back(candidate);
    }
  Agenda agenda(candidates, {}, [](const Candidate& candidate) { return candidate.bound; });
  const auto others = agenda.other_choices(4, {candidates.promising.front().choices});
  REQUIRE(others.size() == 2);
  CHECK(others[0]->candidate == &candidates.promising[2]);
  CHECK(others[1]->candidate == &candidates.promising[4]);
  CHECK(agenda.other_choices(1, {}).size() == 1);
}

}  // namespace
}  // namespace orrery::planner
