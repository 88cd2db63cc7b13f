// Who is to another what a peer is to a rank: laws, over random plans (rapidcheck).
#include "sim/scenario/counterparts.h"

#include <rapidcheck.h>

#include <catch2/catch.hpp>
#include <set>

#include "program/placement.h"
#include "tests/support/jobs.h"
#include "topologies/readers/catalog.h"

using namespace orrery;

namespace {

// Servers beside every worker on whole nodes of eight.
Plan served(int nodes) {
  auto job = test::make_job("gpt2", "dgx-a100", 8 * nodes, 8 * nodes, 128);
  Plan plan{job, {}};
  plan.choices.dp = 8 * nodes;
  plan.choices.sync = Sync::parameter_server;
  plan.choices.servers = plan.choices.dp;
  return plan;
}

// A pipeline of tensor groups with replicas.
Plan grid(int tp, int pp, int dp) {
  auto job = test::make_job("gpt2", "dgx-a100", 8 * ((tp * pp * dp + 7) / 8), dp, 128);
  Plan plan{job, {}};
  plan.choices.tp = tp;
  plan.choices.pp = pp;
  plan.choices.dp = dp;
  return plan;
}

int any_rank(const Plan& plan) {
  return *rc::gen::inRange(0, plan.choices.world());
}

// Each rank is somebody's counterpart once, and going on from there adds up.
void check_laws(const Plan& plan) {
  const sim::Counterparts counterparts(plan);
  const int rank = any_rank(plan), peer = any_rank(plan), other = any_rank(plan);
  RC_ASSERT(counterparts.peer(rank, peer, rank) == peer);
  RC_ASSERT(counterparts.peer(rank, rank, other) == other);
  std::set<int> met;
  for (int r = 0; r < plan.choices.world(); ++r) met.insert(counterparts.peer(rank, peer, r));
  RC_ASSERT(static_cast<int>(met.size()) == plan.choices.world());
  const int there = counterparts.peer(rank, peer, other);
  RC_ASSERT(counterparts.peer(peer, rank, there) == other);
}

}  // namespace

TEST_CASE("counterparts in a grid: each rank is one once, and the way back is the way") {
  CHECK(rc::check([] {
    const auto degree = [] { return *rc::gen::element(1, 2, 3, 4); };
    check_laws(grid(degree(), degree(), degree()));
  }));
}

TEST_CASE("counterparts of servers, too, and they share a node where the peer does") {
  CHECK(rc::check([] {
    const Plan plan = served(*rc::gen::inRange(1, 6));
    check_laws(plan);
    const sim::Counterparts counterparts(plan);
    RC_ASSERT(counterparts.of_whole_nodes());
    const auto node_of = [&](int rank) { return plan.job->cluster.place(device_of(plan, rank)).node; };
    const int rank = any_rank(plan), peer = any_rank(plan), other = any_rank(plan);
    const int there = counterparts.peer(rank, peer, other);
    RC_ASSERT((node_of(rank) == node_of(peer)) == (node_of(other) == node_of(there)));
  }));
}
