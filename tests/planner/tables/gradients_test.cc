#include "planner/tables/gradients.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "planner/evaluation/evaluation.h"
#include "program/lower/lowering.h"
#include "program/placement.h"
#include "tests/support/jobs.h"

namespace orrery::planner {
namespace {

using test::make_job;

// Bucket by bucket, what the Programs of one rank of each stage reduce.
void check_buckets(const std::shared_ptr<const Job>& job, const Choices& choices) {
  const Plan plan{job, choices};
  INFO(job->workload.name << ": " << describe(plan) << ", buckets of " << choices.bucket_bytes << " bytes");
  check_plan(plan);
  const LayerParts parts = layer_parts(job->workload);
  Geometries geometries(job);
  Cuts cuts(job, parts, geometries.uniform());
  Gradients gradients(job, parts, geometries);
  const Geometry& geometry = geometries.of(choices);
  const CollectiveKind reduce =
      choices.zero >= 1 ? CollectiveKind::reduce_scatter : CollectiveKind::all_reduce;
  for (int stage = 0; stage < choices.pp; ++stage) {
    Coordinates at;
    at.pp = stage;
    const Program program = lower(plan, rank_of(plan, at));
    std::vector<double> reduced;
    for (const Bucket& bucket : program.buckets) {
      if (bucket.group < 0) continue;
      const GroupKind kind = program.groups[static_cast<std::size_t>(bucket.group)].kind;
      const double bytes = static_cast<double>(bucket.elements) * bytes_of(plan.gradient_type());
      reduced.push_back(collective_s(reduce, bytes, geometry.shapes.at(kind), *job));
    }
    const Reductions& closed = gradients.of(plan, geometry, cuts.of(choices), stage);
    REQUIRE(closed.steps.size() == reduced.size());
    std::vector<double> steps;
    for (std::size_t i = 0; i < closed.steps.size(); ++i) {
      steps.push_back(closed.steps[i].seconds);
      // As the backward pass completes them, experts among the rest.
      if (i > 0 && closed.steps[i].chunk == closed.steps[i - 1].chunk)
        CHECK(closed.steps[i].part <= closed.steps[i - 1].part);
    }
    std::sort(steps.begin(), steps.end());
    std::sort(reduced.begin(), reduced.end());
    // But for the padding, which makes all ranks' shards equal.
    for (std::size_t i = 0; i < reduced.size(); ++i) CHECK(steps[i] == Approx(reduced[i]).epsilon(1e-4));
  }
}

TEST_CASE("the closed form reduces the Program's buckets") {
  for (const double bytes : {0.0, 16e6, 64e6}) {
    for (const int zero : {0, 1, 3}) {
      Choices c;
      c.zero = zero;
      c.bucket_bytes = bytes;
      c.dp = 16;
      check_buckets(make_job("bert-large", "dgx-a100", 16, 64, 128), c);
      c.dp = 8;
      c.tp = 2;
      check_buckets(make_job("mixtral-8x7b", "dgx-h100", 16, 16, 2048), c);
      c.sequence_parallel = true;
      check_buckets(make_job("llama3-8b", "dgx-h100", 16, 16, 2048), c);
      if (zero < 3) check_buckets(make_job("mixtral-8x7b", "dgx-h100", 16, 16, 2048), c);
      c.tp = 1;
      c.sequence_parallel = false;
      c.pp = 2;
      check_buckets(make_job("llama3-8b", "dgx-h100", 16, 16, 2048), c);
      c.ep = 4;
      if (zero < 3) check_buckets(make_job("mixtral-8x7b", "dgx-h100", 16, 16, 2048), c);
    }
  }
}

}  // namespace
}  // namespace orrery::planner
