#include "sim/condensed.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "tests/support/jobs.h"
#include "tests/support/small_plans.h"
#include "tests/support/walked.h"
#include "topologies/readers/catalog.h"

using namespace orrery;
using namespace orrery::test;
using namespace orrery::sim;

namespace {

Plan pipeline(const std::string& cluster, int nodes, Choices choices, int micro_batches, int experts = 0) {
  SmallModel model;
  model.layers = 8;
  model.hidden = 2048;
  model.heads = 16;
  model.vocab = 51200;
  model.seq_len = 1024;
  model.experts = experts;
  const auto job = small_job(model, static_cast<std::int64_t>(micro_batches) * choices.dp);
  job->cluster = with_nodes(load_cluster(cluster), nodes);
  job->training.precision = DType::bf16;
  job->training.optimizer = Optimizer::adam;
  job->runtime = catalog_runtime("megatron-core");
  choices.sequence_parallel = choices.tp > 1;
  return {job, choices};
}

Choices choose(int tp, int pp, int dp, Schedule schedule, int zero, int interleave = 1) {
  Choices choices;
  choices.tp = tp;
  choices.pp = pp;
  choices.dp = dp;
  choices.schedule = schedule;
  choices.zero = zero;
  choices.interleave = interleave;
  return choices;
}

std::vector<Plan> long_plans() {
  std::vector<Plan> plans;
  for (const char* cluster : {"dgx-a100", "a100-eth100"}) {
    for (const int zero : {0, 1, 3}) {
      plans.push_back(pipeline(cluster, 2, choose(1, 1, 16, Schedule::one_f_one_b, zero), 61));
      plans.push_back(pipeline(cluster, 2, choose(2, 4, 2, Schedule::one_f_one_b, zero), 70));
      plans.push_back(pipeline(cluster, 2, choose(1, 8, 2, Schedule::gpipe, zero), 128));
      plans.push_back(pipeline(cluster, 2, choose(1, 8, 2, Schedule::zero_bubble, zero), 130));
    }
    plans.push_back(pipeline(cluster, 2, choose(2, 4, 2, Schedule::interleaved, 1, 2), 2600));
    Choices uneven = choose(1, 4, 4, Schedule::one_f_one_b, 1);
    uneven.stage_layers = {3, 1, 3, 1};
    plans.push_back(pipeline(cluster, 2, uneven, 90));
    Choices ends = choose(1, 2, 8, Schedule::interleaved, 1, 5);
    ends.stage_layers = {0, 1, 1, 1, 1, 1, 1, 1, 1, 0};
    plans.push_back(pipeline(cluster, 2, ends, 2600));
    Choices experts = choose(1, 4, 4, Schedule::one_f_one_b, 1);
    experts.ep = 4;
    plans.push_back(pipeline(cluster, 2, experts, 64, 8));
    // Pipelines over nodes, replicas inside them: stages share ports.
    experts.order = {Dimension::tp, Dimension::cp, Dimension::ep, Dimension::pp, Dimension::dp};
    plans.push_back(pipeline(cluster, 2, experts, 64, 8));
  }
  std::vector<Plan> some;  // an odd number a cluster: each kind on one of them
  for (std::size_t i = 0; i < plans.size(); ++i)
    if (walked(i, 2)) some.push_back(plans[i]);
  return some;
}

}  // namespace

TEST_CASE("a condensed step is the whole one: time, work, energy and its parts") {
  const std::vector<Plan> plans = long_plans();
  SimulationOptions options;
  options.keep_timeline = false;
  const std::vector<Simulation> whole = simulate_all(plans, options, 2);
  options.condense = true;
  const std::vector<Simulation> few = simulate_all(plans, options, 2);
  std::vector<double> errors;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    REQUIRE(condensed(plans[i]));
    CAPTURE(i, whole[i].step_time_s, few[i].step_time_s);
    errors.push_back(std::abs(few[i].step_time_s / whole[i].step_time_s - 1));
    // Where stages share ports that are slow, rounds are not quite alike; else they are.
    const bool shares_ports = plans[i].choices.order.back() == Dimension::dp;
    const double limit = shares_ports ? 0.025 : 0.005;
    CHECK(errors.back() < limit);
    CHECK(few[i].events < whole[i].events * 0.6);
    CHECK(few[i].breakdown.total() == Approx(few[i].step_time_s).epsilon(1e-6));
    CHECK(few[i].breakdown.compute == Approx(whole[i].breakdown.compute).epsilon(0.01));
    CHECK(few[i].energy_j == Approx(whole[i].energy_j).epsilon(std::max(0.01, limit)));
    for (std::size_t s = 0; s < whole[i].stage_compute_s.size(); ++s)
      CHECK(few[i].stage_compute_s[s] == Approx(whole[i].stage_compute_s[s]).epsilon(1e-6));
    if (!whole[i].links.empty()) {
      CHECK(few[i].links.size() <= static_cast<std::size_t>(options.links));
      REQUIRE(!few[i].links.empty());
      CHECK(few[i].links.front().utilization ==
            Approx(whole[i].links.front().utilization).epsilon(std::max(0.02, limit)));
    }
  }
  std::sort(errors.begin(), errors.end());
  CAPTURE(errors.back());
  CHECK(errors[errors.size() / 2] < 1e-4);
}

TEST_CASE("about as many activities are expected as there are") {
  std::vector<Plan> plans;
  for (const int tp : {1, 2})
    for (const int cp : {1, 2, 4})
      for (const int ep : {1, 2}) {
        Choices choices = choose(tp, 2, 16 / (2 * tp * cp), Schedule::one_f_one_b, 1);
        choices.cp = cp;
        if (choices.dp * cp % ep != 0) continue;
        choices.ep = ep;
        plans.push_back(pipeline("dgx-a100", 2, choices, 16, ep > 1 ? 8 : 0));
      }
  SimulationOptions options;
  options.keep_timeline = false;
  options.condense = true;
  const std::vector<Simulation> simulated = simulate_all(plans, options, 2);
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const Choices& c = plans[i].choices;
    CAPTURE(c.tp, c.cp, c.ep, simulated[i].events, expected_activities(plans[i]));
    CHECK(static_cast<double>(simulated[i].events) < 2 * expected_activities(plans[i]));
    CHECK(static_cast<double>(simulated[i].events) > expected_activities(plans[i]) / 2);
  }
}

TEST_CASE("interleaved pipelines, whose queue may fill late, are simulated whole unless that takes long") {
  Choices choices = choose(8, 9, 1, Schedule::interleaved, 0, 3);
  choices.sequence_parallel = true;
  const auto of = [&](std::int64_t batch) {
    return Plan{make_job("llama3-70b", "dgx-h100", 72, batch, 8192), choices};
  };
  CHECK_FALSE(condensed(of(144)));
  REQUIRE(condensed(of(576)));
  SimulationOptions options;
  options.keep_timeline = false;
  const double whole_s = simulate_all({of(576)}, options, 1).front().step_time_s;
  options.condense = true;
  CHECK(simulate_all({of(576)}, options, 1).front().step_time_s == Approx(whole_s).epsilon(0.012));
}

TEST_CASE("what would save little, or whose replicas differ, is simulated whole") {
  CHECK_FALSE(condensed(pipeline("dgx-a100", 1, choose(1, 8, 1, Schedule::one_f_one_b, 0), 111)));
  CHECK(condensed(pipeline("dgx-a100", 1, choose(1, 8, 1, Schedule::one_f_one_b, 0), 112)));
  Choices uneven = choose(1, 4, 2, Schedule::one_f_one_b, 0);
  uneven.replica_batches = {300, 100};
  CHECK_FALSE(condensed(pipeline("dgx-a100", 1, uneven, 200)));
}
