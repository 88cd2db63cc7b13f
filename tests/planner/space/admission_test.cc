// Why nothing can be planned: what was asked goes before what nobody asked for.
#include "planner/space/admission.h"

#include <catch2/catch.hpp>

#include "base/error.h"
#include "planner/space/space.h"
#include "tests/support/jobs.h"

namespace orrery::planner {
namespace {

using test::make_job;

std::string refusal(const std::shared_ptr<const Job>& job, const Pins& pins) {
  try {
    enumerate(job, pins);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("a batch that no number of replicas divides is named, not what the runtime cannot do instead") {
  for (const char* runtime : {"pytorch-ddp", "typical"}) {
    const std::string text = refusal(make_job("bert-large", "v100-ib100", 5, 64, 512, runtime), {});
    if (std::string_view(runtime) == "pytorch-ddp")
      CHECK(text == "`global_batch` 64: does not divide by dp 5 x micro-batch 1 (expected a multiple of 5)");
    else
      CHECK_THAT(text, !Catch::Contains("has no"));
  }
}

TEST_CASE("rows that pinned sequence parallelism cannot split are named") {
  Pins pins;
  pins.tp = 8;
  pins.sequence_parallel = true;
  CHECK_THAT(refusal(make_job("llama3-8b", "dgx-h100", 8, 1, 8193), pins),
             Catch::StartsWith("`sequence_parallel` on: 8193 rows of a micro-batch do not divide by `tp` 8 "
                               "(expected "));
  pins.tp = 4;
  pins.cp = 2;
  pins.micro_batch = 1;
  CHECK_THAT(refusal(make_job("llama3-8b", "dgx-h100", 8, 1, 8196), pins),
             Catch::StartsWith("`sequence_parallel` on: 4098 rows"));
}

TEST_CASE("micro-batches that a pinned interleaved schedule cannot deal out are named") {
  Pins pins;
  pins.pp = 4;
  pins.dp = 2;
  pins.micro_batch = 1;
  pins.schedule = Schedule::interleaved;
  pins.interleave = 2;
  CHECK_THAT(refusal(make_job("llama3-8b", "dgx-h100", 8, 12, 1024), pins),
             Catch::StartsWith("`schedule` interleaved: 6 micro-batches do not divide by `pp` 4 (expected "));
}

TEST_CASE("zero-bubble without stages is refused") {
  Pins pins;
  pins.schedule = Schedule::zero_bubble;
  pins.pp = 1;
  CHECK_THAT(refusal(make_job("gpt2", "dgx-h100", 8, 8, 1024), pins),
             Catch::StartsWith("`schedule` zero-bubble with `pp` 1"));
  pins.pp.reset();
  for (const Choices& c : enumerate(make_job("gpt2", "dgx-h100", 8, 8, 1024), pins)) CHECK(c.pp > 1);
}

TEST_CASE("no more layers run again than the largest stage has") {
  Pins pins;
  pins.recompute = Recompute::full;
  pins.recompute_layers = 7;
  pins.stage_layers = std::vector<int>{6, 6};
  CHECK(refusal(make_job("gpt2", "dgx-h100", 8, 8, 1024), pins) ==
        "`recompute` full:7: the largest of 2 stages of gpt2 has 6 layers (expected at most 6, or full)");
  pins.recompute_layers = 6;
  CHECK(refusal(make_job("gpt2", "dgx-h100", 8, 8, 1024), pins) == "");
  // Free stages are those that have so many layers.
  pins.stage_layers.reset();
  pins.recompute_layers = 7;
  for (const Choices& c : enumerate(make_job("gpt2", "dgx-h100", 8, 8, 1024), pins))
    if (c.stage_layers.empty()) CHECK(c.pp == 1);
}

}  // namespace
}  // namespace orrery::planner
