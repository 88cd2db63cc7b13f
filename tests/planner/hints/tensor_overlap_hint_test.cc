#include "planner/hints/tensor_overlap_hint.h"

#include <catch2/catch.hpp>

#include "base/error.h"
#include "planner/space/tensor_overlap.h"
#include "tests/support/jobs.h"

namespace orrery::planner {
namespace {

using test::make_job;

SearchResult hinted(const std::string& runtime, const Pins& pins = {}, SearchOptions options = {}) {
  options.rank = Rank::nominal;
  SearchResult result =
      search(make_job("gpt3-175b", "dgx-a100", 64, 128, 2048, runtime.c_str()), pins, options);
  hint_at_tensor_overlap(pins, options, &result);
  return result;
}

Pins on_tensor_ranks() {
  Pins pins;
  pins.tp = 8;
  pins.micro_batch = 1;
  return pins;
}

TEST_CASE("a runtime that hides no tensor collectives unless it is told says where it would be faster so") {
  const SearchResult result = hinted("megatron-core", on_tensor_ranks());
  REQUIRE(result.tensor_overlap);
  const Evaluation& overlapped = *result.tensor_overlap;
  CHECK(overlapped.step_time_s() < 0.99 * result.plans.front().step_time_s());
  CHECK(overlapped.plan.job->runtime.overlap_tensor);
  CHECK_FALSE(result.plans.front().plan.job->runtime.overlap_tensor);
  CHECK(overlapped.plan.choices.sequence_parallel);
  CHECK(overlapped.interval);
  CHECK_THAT(result.why_tensor_overlap,
             Catch::Contains("`overlap_tensor` on") && Catch::Contains("--tp-comm-overlap"));
  CHECK_THAT(result.why, Catch::EndsWith(result.why_tensor_overlap));

  // Turned on, it is what a search finds.
  auto job = std::make_shared<Job>(*result.plans.front().plan.job);
  set_tensor_overlap(true, false, job.get());
  SearchOptions options;
  options.rank = Rank::nominal;
  SearchResult on = search(job, on_tensor_ranks(), options);
  CHECK(on.plans.front().step_time_s() <= overlapped.step_time_s() * (1 + 1e-9));
  hint_at_tensor_overlap(on_tensor_ranks(), options, &on);
  CHECK_FALSE(on.tensor_overlap);
}

TEST_CASE("nothing is said of tensor collectives where they are hidden already, or nobody asks for speed") {
  CHECK_FALSE(hinted("typical", on_tensor_ranks()).tensor_overlap);  // on without being told
  CHECK_FALSE(hinted("deepspeed").tensor_overlap);                   // has no such setting
  Pins apart;
  apart.tp = 1;
  CHECK_FALSE(hinted("megatron-core", apart).tensor_overlap);
  SearchOptions memory;
  memory.objective = Objective::memory;
  CHECK_FALSE(hinted("megatron-core", on_tensor_ranks(), memory).tensor_overlap);
}

TEST_CASE("tensor overlap is a setting that only some software has, within a node and with split sequences") {
  Job job = *make_job("gpt2", "dgx-a100", 16, 16, 1024, "deepspeed");
  CHECK_THROWS_AS(set_tensor_overlap(true, false, &job), UserError);
  set_tensor_overlap(false, false, &job);
  set_tensor_overlap(true, true, &job);
  CHECK(job.runtime.overlap_tensor);
  Choices choices;
  choices.tp = 8;
  choices.sequence_parallel = true;
  CHECK(tensor_overlap_reaches(job, choices));
  choices.tp = 16;
  CHECK_FALSE(tensor_overlap_reaches(job, choices));
  choices.tp = 8;
  choices.sequence_parallel = false;
  CHECK_FALSE(tensor_overlap_reaches(job, choices));
}

}  // namespace
}  // namespace orrery::planner
