// NCCL, MPI and Gloo underneath, by numbers that are worked out by hand.
#include "compare/library.h"

#include <catch2/catch.hpp>
#include <numeric>

#include "base/error.h"
#include "compare/compare.h"
#include "cost/host_cost.h"
#include "tests/support/jobs.h"

namespace orrery::comparison {
namespace {

// So many V100, one a node, with a port of 100 Gb/s each.
Cluster single_devices(int nodes) {
  return with_devices(load_cluster("v100-ib100"), nodes);
}

GroupShape shape_of_all(const Cluster& cluster) {
  std::vector<int> all(static_cast<std::size_t>(cluster.devices()));
  std::iota(all.begin(), all.end(), 0);
  return group_shape(Network(cluster), all);
}

double seconds_over(Library library, double bytes, const Cluster& cluster,
                    const std::optional<Algorithm>& algorithm = {}) {
  return all_reduce_s(library, bytes, shape_of_all(cluster), cluster, algorithm);
}

TEST_CASE("Gloo copies to the host and back, and goes round a ring of TCP connections twice") {
  const Cluster cluster = single_devices(16);
  // 100 MB in 16 parts of 6.25 MB; 30 rounds, each a message of 30 us and of a part at 1448/1538 of what one
  // connection carries; 15 parts are added at 5 GB/s; 2 us for the call.
  const double part = 6.25e6;
  const double round_s = 30e-6 + part / (kGlooConnectionBytesPerS * 1448 / 1538);
  const double copies_s = 2 * 100e6 / host_link_bytes_per_s(cluster.profile_of(0), cluster);
  CHECK(seconds_over(Library::gloo, 100e6, cluster) ==
        Approx(copies_s + 2e-6 + 30 * round_s + 15 * part / 5e9).epsilon(1e-9));
  CHECK_THROWS_AS(seconds_over(Library::gloo, 100e6, cluster, Algorithm::tree), UserError);
}

TEST_CASE("MPI chooses doubling for short sums and a ring for long ones, through the host") {
  const Cluster cluster = single_devices(16);
  const double link = host_link_bytes_per_s(cluster.profile_of(0), cluster);
  // Four rounds of all 4 KB, at 4096/4126 of 12.5 GB/s.
  const double rate = 12.5e9 * 4096 / 4126;
  const double latency_s = std::max(2e-6, shape_of_all(cluster).inter_latency_s);
  CHECK(seconds_over(Library::mpi, 4096, cluster) ==
        Approx(2 * 4096 / link + 2e-6 + 4 * (latency_s + 4096 / rate) + 4 * 4096 / 5e9).epsilon(1e-9));
  // Long messages ask, are answered and then sent: three crossings a round.
  CHECK(seconds_over(Library::mpi, 100e6, cluster) ==
        Approx(2 * 100e6 / link + 2e-6 + 30 * (3 * latency_s + 6.25e6 / rate) + 15 * 6.25e6 / 5e9)
            .epsilon(1e-9));
  CHECK(seconds_over(Library::mpi, 4096, cluster, Algorithm::ring) >
        seconds_over(Library::mpi, 4096, cluster));
}

TEST_CASE("NCCL is the cluster's own where it is NCCL's, and refused elsewhere") {
  const Cluster cluster = single_devices(4);
  CHECK(seconds_over(Library::nccl, 100e6, cluster) == seconds_over(Library::own, 100e6, cluster));
  Cluster processors = cluster;
  processors.communication.library = CommunicationLibrary::mpi;
  CHECK_THROWS_AS(check_library(Library::nccl, processors), UserError);
  CHECK_NOTHROW(check_library(Library::gloo, processors));
  CHECK(seconds_over(Library::gloo, 100e6, single_devices(1)) == 0);
}

TEST_CASE("what a library takes longer for an all-reduce shows where it is not hidden") {
  auto job = test::make_job("resnet50", "v100-ib100", 8, 512, 0, "pytorch-ddp");
  job->training.precision = DType::fp16;
  Question question;
  question.base.job = job;
  question.strategies = parse_strategies(
      "ddp:overlap=off:bucket=0,ddp:overlap=off:bucket=0:library=nccl,ddp:overlap=off:bucket=0:library=mpi,"
      "ddp:overlap=off:bucket=0:library=gloo,local-sgd:local_steps=1,local-sgd:local_steps=1:library=gloo");
  const Comparison comparison = compare(question);
  const auto step_s = [&](std::size_t row) { return comparison.rows[row].whole().step_s; };
  CHECK(step_s(1) == step_s(0));
  // One all-reduce behind the backward pass: as many times longer as it is alone.
  const Plan& plan = *comparison.rows[0].whole().plan;
  const double bytes = 4.0 * static_cast<double>(plan.job->workload.parameters());
  const Cluster& cluster = plan.job->cluster;
  for (const auto& [row, library] : {std::pair{2, Library::mpi}, {3, Library::gloo}}) {
    const double longer_s =
        seconds_over(library, bytes, cluster) - seconds_over(Library::own, bytes, cluster);
    CHECK(step_s(static_cast<std::size_t>(row)) - step_s(0) == Approx(longer_s).epsilon(0.1));
  }
  // An average alone: exactly.
  CHECK(comparison.rows[5].whole().average_s == Approx(seconds_over(Library::gloo, bytes, cluster)));
  CHECK(comparison.rows[5].whole().average_s > comparison.rows[4].whole().average_s);
}

}  // namespace
}  // namespace orrery::comparison
