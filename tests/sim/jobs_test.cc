#include "sim/jobs.h"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>

#include "base/error.h"
#include "sim/processes/isolate.h"
#include "sim/simulator.h"
#include "tests/support/jobs.h"
#include "tests/support/small_plans.h"
#include "topologies/readers/catalog.h"

using namespace orrery;
using namespace orrery::test;
using namespace orrery::sim;

namespace {

// Data parallel over two servers of one V100, no overlap: compute, then a ring of two.
Plan pair_plan() {
  SmallModel model;
  model.layers = 4;
  model.hidden = 1024;
  model.heads = 8;
  model.vocab = 8192;
  model.seq_len = 512;
  const auto job = small_job(model, 2);
  job->cluster = with_nodes(load_cluster("v100-ib100"), 2);
  job->training.precision = DType::fp16;
  Choices choices;
  choices.dp = 2;
  choices.overlap_grad_reduce = false;
  return {job, choices};
}

// Two leaves of two servers under a spine that carries 1/4 of what the servers below it can send.
Cluster tapered() {
  Cluster cluster = with_nodes(load_cluster("v100-ib100"), 4);
  cluster.fabric.kind = FabricKind::fat_tree;
  cluster.fabric.nodes_per_leaf = 2;
  cluster.fabric.oversubscription = 4;
  return cluster;
}

}  // namespace

TEST_CASE("two jobs on one spine slow each other's communication to half, and not their compute") {
  const Cluster cluster = tapered();
  const Plan plan = pair_plan();
  // Inside a leaf there is nothing to share.
  const auto apart = simulate_jobs(cluster, {{plan, {0, 1}}, {plan, {2, 3}}});
  CHECK(apart[0] == Approx(simulate(plan).step_time_s).epsilon(1e-3));
  CHECK(apart[1] == Approx(apart[0]).epsilon(1e-6));
  // Across the spine alone: half of a port's rate (2 servers x 1/4). Two jobs: a quarter each.
  const double alone = simulate_jobs(cluster, {{plan, {0, 2}}})[0];
  const auto both = simulate_jobs(cluster, {{plan, {0, 2}}, {plan, {1, 3}}});
  CHECK(both[0] == Approx(both[1]).epsilon(1e-6));
  const double compute = simulate(plan).busy_s.at("forward") + simulate(plan).busy_s.at("backward");
  CHECK(alone > apart[0] * 1.01);
  CHECK(both[0] - compute == Approx(2 * (alone - compute)).epsilon(0.1));
}

TEST_CASE("jobs that claim one device, or devices that are not there, are the user's error") {
  const Plan plan = pair_plan();
  CHECK_THROWS_AS(simulate_jobs(tapered(), {{plan, {0, 1}}, {plan, {1, 2}}}), UserError);
  CHECK_THROWS_AS(simulate_jobs(tapered(), {{plan, {0, 4}}}), UserError);
  CHECK_THROWS_AS(simulate_jobs(tapered(), {{plan, {0}}}), UserError);
  CHECK_THROWS_AS(simulate_jobs(tapered(), {}), UserError);
}

// In a process of its own: a server stays.
TEST_CASE("jobs, plans and collectives that the server's children simulate take what they take here") {
  Choices choices;
  choices.dp = 2;
  const Plan plan{make_job("gpt2", "v100-ib100", 2, 4, 512), choices};
  const Cluster cluster = tapered();
  const std::vector<PlacedJob> jobs = {{plan, {0, 2}}, {plan, {1, 3}}};
  const auto figures = [&] {
    std::vector<double> all = simulate_jobs(cluster, jobs);
    all.push_back(simulate(plan).step_time_s);
    const Algorithm ring = Algorithm::ring;
    for (const Algorithm* forced : {static_cast<const Algorithm*>(nullptr), &ring})
      all.push_back(
          simulate_collective(CollectiveKind::all_gather, 1e7, cluster, 4, Detail::messages, forced).time_s);
    return all;
  };
  const std::vector<double> here = figures();
  const pid_t child = fork();
  if (child == 0) {
    start_server();
    int code = 2;
    try {
      code = figures() == here ? 0 : 1;
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
    _exit(code);
  }
  int status = -1;
  waitpid(child, &status, 0);
  CHECK(status == 0);
}
