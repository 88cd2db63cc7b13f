#include "planner/evaluation/refit.h"

#include <catch2/catch.hpp>

#include "base/error.h"
#include "topologies/readers/discover.h"

namespace orrery::planner {
namespace {

// A step whose computation and communication follow one another.
Validated validated(double computation_s, double communication_s, Slowdown truth, double noise = 1) {
  const double measured = noise * (truth.computation * computation_s + truth.communication * communication_s);
  return {computation_s + communication_s,
          measured,
          {{"forward", computation_s, noise * truth.computation * computation_s},
           {"data_comm", communication_s, noise * truth.communication * communication_s}}};
}

TEST_CASE("a refit finds how much slower computation and communication were") {
  const Slowdown truth{1.25, 0.9};
  std::vector<Validated> validations;
  for (const double share : {0.1, 0.3, 0.5, 0.7, 0.9})
    validations.push_back(validated(share, 1 - share, truth));
  const Refit found = refit(validations);
  CHECK(found.slowdown.computation == Approx(1.25));
  CHECK(found.slowdown.communication == Approx(0.9));
  CHECK(found.median_error > 0.06);
  CHECK(found.left_out_median_error == Approx(0).margin(1e-12));
}

TEST_CASE("one disturbed validation does not move a refit") {
  const Slowdown truth{1.25, 0.9};
  std::vector<Validated> validations(4, validated(0.5, 0.5, truth));
  validations.push_back(validated(0.5, 0.5, truth, 3));
  CHECK(refit(validations).slowdown.computation == Approx(1.25));
}

TEST_CASE("what was never a part of a step keeps its rate") {
  const Refit found = refit(std::vector<Validated>(3, validated(1, 0, {2, 1})));
  CHECK(found.slowdown.computation == Approx(2));
  CHECK(found.slowdown.communication == 1);
}

TEST_CASE("two validations are too few for a refit") {
  CHECK_THROWS_AS(refit(std::vector<Validated>(2, validated(1, 1, {}))), NoAnswer);
}

TEST_CASE("a slowed cluster keeps its ratios and never beats its links") {
  const Cluster before = discover_uncalibrated_localhost();
  const Cluster after = slowed(before, {2, 0.1});
  const DeviceProfile& device = after.profiles.front();
  CHECK(device.peak(DType::fp32) == Approx(before.profiles.front().peak(DType::fp32) / 2));
  CHECK(device.memory_bandwidth_bytes_per_s ==
        Approx(before.profiles.front().memory_bandwidth_bytes_per_s / 2));
  CHECK(after.communication.network_efficiency <= 1);
  CHECK(after.communication.point_to_point_latency_s ==
        Approx(before.communication.point_to_point_latency_s / 10));
}

}  // namespace
}  // namespace orrery::planner
