#include "planner/tables/unlike_groups.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "base/random.h"
#include "planner/closed_form/estimator.h"
#include "planner/space/space.h"
#include "program/forms.h"
#include "program/placement.h"
#include "sim/simulator.h"
#include "tests/support/closed_form.h"
#include "tests/support/jobs.h"
#include "workloads/fine_tuning.h"

namespace orrery::planner {
namespace {

// Nodes of six devices, each with a port of its own of 100 Gb/s.
std::shared_ptr<Job> six_job(int nodes, std::int64_t batch) {
  auto job = test::make_job("mixtral-8x7b", "dgx-h100", 8 * nodes, batch, 2048);
  NodeType& node = job->cluster.groups.front().node;
  node.devices = 6;
  node.nic.count = 6;
  node.nic.bandwidth_bytes_per_s = 12.5e9;
  node.nic.of_device = {0, 1, 2, 3, 4, 5};
  return job;
}

std::set<std::vector<int>> spreads(const Plan& plan, GroupKind kind, const std::vector<int>& ranks) {
  const int on_node = plan.job->cluster.groups.front().node.devices;
  std::set<std::vector<int>> found;
  for (const int rank : ranks) found.insert(spread_over_nodes(group_of(kind, plan, rank).ranks, on_node));
  return found;
}

TEST_CASE("groups that stand differently on the nodes are found from a few ranks") {
  int unlike = 0, alike = 0;
  for (const int nodes : {2, 4}) {
    const auto job = six_job(nodes, 48);
    std::vector<int> all;
    for (int rank = 0; rank < job->cluster.devices(); ++rank) all.push_back(rank);
    for_each_family(job, {}, [&](Family&& family) {
      const Plan plan{job, family.core};
      const std::vector<int> some = ranks_unlike(plan.choices, 6);
      for (const GroupRule& rule : group_rules()) {
        if (!rule.in_layers || !rule.used(plan)) continue;
        const auto whole = spreads(plan, rule.kind, all);
        INFO(describe(plan) << ", " << rule.name);
        if (some.size() == 1) CHECK(whole.size() == 1);
        // What lies on most nodes is among them.
        const auto most = [](const std::set<std::vector<int>>& of) {
          std::size_t nodes_of = 0;
          for (const std::vector<int>& spread : of) nodes_of = std::max(nodes_of, spread.size());
          return nodes_of;
        };
        CHECK(most(spreads(plan, rule.kind, some)) == most(whole));
        ++(whole.size() > 1 ? unlike : alike);
      }
    });
  }
  CHECK(unlike > 0);
  CHECK(alike > 0);
}

TEST_CASE("a step waits for the experts' group that lies across the end of a node") {
  const auto job = six_job(2, 48);
  // Adapters: hardly a gradient travels beside.
  FineTuning tuning;
  tuning.rank = 16;
  fine_tune(job->workload, tuning);
  // Four neighbours: two groups in a node each, and one on both.
  Choices c;
  c.dp = 12;
  c.ep = 4;
  c.zero = 1;
  const Plan plan{job, c};
  const double simulated_s = sim::simulate(plan).step_time_s;
  Estimator estimator(job);
  CHECK(estimator.times(c).estimate_s == Approx(simulated_s).epsilon(0.05));
  CHECK(estimator.lower_bound_s(c) <= simulated_s * (1 + 1e-9));
  CHECK(estimator.lower_bound_s(c) > 0.9 * simulated_s);
}

TEST_CASE(
    "where groups are unlike the bound is never above the simulated step, and the estimate is near it") {
  const auto job = six_job(4, 48);
  Pins pins;
  pins.ep = 4;
  std::vector<Plan> plans;
  const std::vector<Choices> space = enumerate(job, pins);
  REQUIRE_FALSE(space.empty());
  const CounterRandom random(9, 1);
  for (int i = 0; i < 24; ++i) plans.push_back({job, space[random.bits(i) % space.size()]});
  test::check_closed_form(plans);
}

}  // namespace
}  // namespace orrery::planner
