#include "planner/search/agenda.h"

#include <catch2/catch.hpp>

namespace orrery::planner {
namespace {

// Of one plan that is expected to take 10 s and sums bound by 8 s, its slots by so much.
double nominal_of(Schedule schedule, double slot_bound_s) {
  Candidates candidates;
  Candidate candidate;
  candidate.choices.pp = 4;
  candidate.choices.schedule = schedule;
  candidate.expected = 10;
  candidate.bound = 8;
  candidates.promising = {candidate};
  const Agenda agenda(candidates, {}, [&](const Candidate&) { return slot_bound_s; });
  return agenda.all().front().nominal();
}

TEST_CASE("what a schedule's slots show counts once, whether the estimate has laid them or not") {
  for (const Schedule laid :
       {Schedule::one_f_one_b, Schedule::zero_bubble, Schedule::interleaved, Schedule::dualpipe_v}) {
    CHECK(nominal_of(laid, 9) == 10);
    CHECK(nominal_of(laid, 11) == 11);
  }
  CHECK(nominal_of(Schedule::gpipe, 9) == 11);
}

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
