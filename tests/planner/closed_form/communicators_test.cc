// Device memory of communicators, and of what an update copies, by hand.
#include "planner/closed_form/communicators.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "planner/closed_form/figures.h"
#include "tests/support/jobs.h"

namespace orrery::planner {
namespace {

constexpr double kChannel = 12.0 * (1 << 20);  // 4 + 1/2 + 4.7 MiB of buffers and a head, in whole 2 MiB
constexpr double kAmpere = 24, kVolta = 12;    // channels

Plan plan_of(const std::string& cluster, int devices, int tp, int pp) {
  const auto job = test::make_job("megatron-22b", cluster, devices, 64, 2048, "megatron-deepspeed");
  job->training.precision = DType::fp16;
  Plan plan;
  plan.job = job;
  plan.choices.tp = tp;
  plan.choices.pp = pp;
  plan.choices.dp = devices / tp / pp;
  plan.choices.recompute = Recompute::full;
  return plan;
}

Plan with(const Plan& plan, void (*change)(RuntimeProfile&)) {
  auto job = std::make_shared<Job>(*plan.job);
  change(job->runtime);
  return {job, plan.choices};
}

TEST_CASE(
    "communicators take a channel's buffers for each neighbour on the node, of each group that meets there") {
  // A node of eight: all ranks once, the tensor group and that of a replica twice, two neighbours each.
  CHECK(communicator_bytes(plan_of("dgx-a100", 8, 8, 1)) == (2 + 2 * (2 + 2)) * kAmpere * kChannel);
  // Two replicas of four on a node: their data group has one neighbour.
  CHECK(communicator_bytes(plan_of("dgx-a100", 8, 4, 1)) == (2 + 2 * (2 + 1 + 2)) * kAmpere * kChannel);
  // Stages on nodes of their own meet nobody but their tensor group, whatever the network carries.
  CHECK(communicator_bytes(plan_of("dgx-a100", 16, 8, 2)) ==
        communicator_bytes(plan_of("dgx-a100", 8, 8, 1)));
  CHECK(communicator_bytes(plan_of("dgx-v100-32g", 8, 8, 1)) == (2 + 2 * (2 + 2)) * kVolta * kChannel);
  // One rank talks to nobody.
  CHECK(communicator_bytes(plan_of("dgx-a100", 1, 1, 1)) == 0);
}

TEST_CASE("what communicators take is gone from the device, and is none of the allocator's") {
  const Plan plan = plan_of("dgx-a100", 16, 8, 2);
  const Plan without = with(plan, [](RuntimeProfile& runtime) { runtime.communicator_sets = 0; });
  CHECK(communicator_bytes(without) == 0);
  const Memory more = predict_memory(plan), less = predict_memory(without);
  CHECK(more.allocated == less.allocated);
  CHECK(more.reserved == less.reserved);
  CHECK(more.total - less.total == Approx(communicator_bytes(plan)));
  CHECK(more.needed - less.needed == Approx(communicator_bytes(plan)));
}

TEST_CASE("an update's flat copies stand beside what they are made of, and fill a bucket's place first") {
  Plan plan = plan_of("dgx-a100", 16, 2, 2);
  const auto copies = [&](int zero) {
    plan.choices.zero = zero;
    const Plan without = with(plan, [](RuntimeProfile& runtime) {
      runtime.update_gradient_bytes = runtime.flat_bucket_parameters = 0;
    });
    return predict_memory_of_stage(plan, 0).buffers - predict_memory_of_stage(without, 0).buffers;
  };
  plan.choices.zero = 0;
  const double parameters = predict_memory_of_stage(plan, 0).weights / 2;
  REQUIRE(parameters > 5e8);
  // Nothing sharded: each gradient in fp32 and the flat tensor of them.
  CHECK(copies(0) == Approx(8 * parameters));
  // A quarter each: the reduced bucket is larger than the flat fp16 gradients; then fp32.
  CHECK(copies(1) == Approx(std::max(2 * 5e8, 2 * parameters / 4) + 4 * parameters / 4));
  // They come when activations are gone: only what is more than these must be there.
  const Memory m = predict_memory_of_stage(plan, 0);
  CHECK(m.needed < m.total);
}

TEST_CASE("in fp32 an update copies nothing but the bucket that is reduced") {
  Plan plan = plan_of("dgx-a100", 8, 2, 1);
  auto job = std::make_shared<Job>(*plan.job);
  job->training.precision = DType::fp32;
  plan.job = job;
  const Plan without = with(plan, [](RuntimeProfile& runtime) { runtime.flat_bucket_parameters = 0; });
  CHECK(predict_memory(plan).buffers - predict_memory(without).buffers == Approx(4 * 5e8));
}

}  // namespace
}  // namespace orrery::planner
