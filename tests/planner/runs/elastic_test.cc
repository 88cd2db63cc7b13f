#include "planner/runs/elastic.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "base/error.h"
#include "planner/evaluation/evaluation.h"
#include "planner/runs/checkpoint_cost.h"
#include "planner/uncertainty/outlook.h"
#include "sim/simulator.h"
#include "tests/support/jobs.h"

namespace orrery::planner {
namespace {

using test::make_job;

Choices gpt2_on_four_nodes() {
  Choices choices;
  choices.tp = 4;
  choices.pp = 2;
  choices.dp = 4;
  choices.micro_batch = 1;
  choices.zero = 1;
  return choices;
}

TEST_CASE("a checkpoint is the master weights, Adam's two moments and the weights that kernels read") {
  const auto job = make_job("gpt2", "dgx-a100", 32, 48, 512);
  Choices choices = gpt2_on_four_nodes();
  choices.order = {Dimension::tp, Dimension::cp, Dimension::ep, Dimension::pp, Dimension::dp};
  const Plan plan{job, choices};
  const auto parameters = static_cast<double>(job->workload.parameters());
  CHECK(checkpoint_bytes_per_parameter(plan) == 14);
  const CheckpointCost cost = checkpoint_cost(plan);
  CHECK(cost.bytes == Approx(14 * parameters));
  // One replica a node: all write, and the fuller stage decides how long a device copies.
  const NodeType& node = job->cluster.groups.front().node;
  CHECK(cost.write_s == Approx(14 * parameters / 4 / node.storage_write_bytes_per_s));
  CHECK(cost.read_s == Approx(14 * parameters / 4 / node.storage_read_bytes_per_s));
  CHECK(cost.device_bytes >= 14 * parameters / 32);
  CHECK(cost.device_bytes_per_s == node.nic.pcie_bandwidth_bytes_per_s);

  Plan replicated = plan;
  replicated.choices.zero = 0;  // the first replica writes, on one node
  CHECK(checkpoint_cost(replicated).write_s == Approx(4 * cost.write_s));
  Plan hybrid = plan;
  hybrid.choices.shard_group = 2;  // two nodes have all of it
  CHECK(checkpoint_cost(hybrid).write_s == Approx(2 * cost.write_s));

  auto single = std::make_shared<Job>(*job);
  single->training.precision = DType::fp32;
  single->training.optimizer = Optimizer::momentum;
  CHECK(checkpoint_bytes_per_parameter({single, plan.choices}) == 8);
}

TEST_CASE("published checkpoints are as large") {
  // Megatron-LM, arXiv 2104.04473 section 5.10: 13.8 TB of a trillion parameters; BLOOM's chronicles: 2.3 TB
  // (which du and ls count in powers of 1024).
  struct Published {
    const char* workload;
    const char* runtime;
    double parameters, bytes;
  };
  for (const Published& row :
       {Published{"megatron-1t", "megatron-core", 1.008e12, 13.8e12},
        Published{"gpt3-175b", "megatron-deepspeed", 176.2e9, 2.3 * 1099511627776.0}}) {
    const auto job = make_job(row.workload, "dgx-a100", 8, 8, 2048, row.runtime);
    const double bytes = row.parameters * checkpoint_bytes_per_parameter({job, Choices{}});
    CHECK(bytes == Approx(row.bytes).epsilon(0.03));
  }
}

TEST_CASE("fewer replicas share the same batch as evenly as micro-batches allow") {
  const Plan plan{make_job("gpt2", "dgx-a100", 32, 40, 512), gpt2_on_four_nodes()};
  std::string refusal;
  const std::vector<Plan> three = forms_with_replicas(plan, 3, refusal);
  REQUIRE(three.size() == 1);
  CHECK(three[0].job->cluster.nodes() == 3);
  CHECK(three[0].choices.replica_batches == std::vector<std::int64_t>{14, 13, 13});
  const std::vector<Plan> two = forms_with_replicas(plan, 2, refusal);
  REQUIRE(two.size() == 1);
  CHECK(two[0].choices.replica_batches.empty());
}

TEST_CASE("an interleaved schedule deals in groups of micro-batches, or gives way to 1F1B") {
  Choices choices = gpt2_on_four_nodes();
  choices.schedule = Schedule::interleaved;
  choices.interleave = 2;
  const Plan plan{make_job("gpt2", "dgx-a100", 32, 40, 512), choices};
  std::string refusal;
  const std::vector<Plan> three = forms_with_replicas(plan, 3, refusal);
  REQUIRE(three.size() == 2);
  CHECK(three[0].choices.replica_batches == std::vector<std::int64_t>{14, 14, 12});
  CHECK(three[1].choices.schedule == Schedule::one_f_one_b);
  CHECK(three[1].choices.replica_batches == std::vector<std::int64_t>{14, 13, 13});
}

TEST_CASE("micro-batches are cut where whole ones cannot be shared evenly") {
  Choices choices = gpt2_on_four_nodes();
  choices.micro_batch = 4;
  const Plan plan{make_job("gpt2", "dgx-a100", 32, 16, 512), choices};  // one micro-batch each
  std::string refusal;
  const std::vector<Plan> three = forms_with_replicas(plan, 3, refusal);
  CHECK(std::any_of(three.begin(), three.end(), [](const Plan& form) {
    return form.choices.replica_batches == std::vector<std::int64_t>{6, 5, 5} ||
           form.choices.replica_batches == std::vector<std::int64_t>{6, 6, 4};
  }));
}

TEST_CASE("groups of shards that no longer divide the replicas give way to all of them") {
  Choices choices = gpt2_on_four_nodes();
  choices.shard_group = 2;
  const Plan plan{make_job("gpt2", "dgx-a100", 32, 48, 512), choices};
  std::string refusal;
  REQUIRE(forms_with_replicas(plan, 3, refusal).size() == 1);
  CHECK(forms_with_replicas(plan, 3, refusal)[0].choices.shard_group == 0);
  CHECK(forms_with_replicas(plan, 2, refusal)[0].choices.shard_group == 2);
}

TEST_CASE("smaller plans are simulated, one a number of nodes, each slower than the one before") {
  const Plan plan{make_job("gpt2", "dgx-a100", 32, 48, 512), gpt2_on_four_nodes()};
  const double step_s = sim::simulate(plan).step_time_s;
  const std::vector<RunningPlan> smaller = smaller_plans(plan, 1, 1);
  REQUIRE(smaller.size() == 3);
  double before = step_s;
  for (int i = 0; i < 3; ++i) {
    CHECK(smaller[static_cast<std::size_t>(i)].nodes == 3 - i);
    CHECK(smaller[static_cast<std::size_t>(i)].step_s > before);
    CHECK(smaller[static_cast<std::size_t>(i)].energy_j > 0);
    before = smaller[static_cast<std::size_t>(i)].step_s;
  }
  CHECK(smaller_plans(plan, 3, 1).size() == 1);
  CHECK(smaller_plans(plan, 2, 2)[1].step_s == smaller[1].step_s);
}

TEST_CASE("a plan that cannot spare a replica says why") {
  Choices choices = gpt2_on_four_nodes();
  choices.tp = 4;
  choices.pp = 2;
  choices.dp = 1;
  CHECK_THROWS_WITH(smaller_plans({make_job("gpt2", "dgx-a100", 8, 8, 512), choices}, 0, 1),
                    Catch::Contains("there is only one"));
  choices.pp = 1;
  choices.dp = 2;  // both on one node
  CHECK_THROWS_WITH(smaller_plans({make_job("gpt2", "dgx-a100", 8, 8, 512), choices}, 0, 1),
                    Catch::Contains("do not fill whole nodes"));
  choices = gpt2_on_four_nodes();
  choices.zero = 2;  // replicas of unequal batches are refused under ZeRO-2; two of four divide it
  const std::vector<RunningPlan> smaller =
      smaller_plans({make_job("gpt2", "dgx-a100", 32, 16, 512), choices}, 0, 1);
  REQUIRE(smaller.size() == 2);
  CHECK(smaller[0].nodes == 2);
}

TEST_CASE("smaller plans fit in memory as surely as a search wants it") {
  Choices choices;
  choices.dp = 24;
  choices.zero = 2;
  const Plan plan{make_job("llama3-8b", "dgx-h100", 24, 48, 8192, "typical"), choices};
  std::string refusal;
  CHECK(forms_with_replicas(plan, 16, refusal).size() == 1);
  // ZeRO's shards have grown: some layers are run again, the fewest that make room.
  const std::vector<Plan> forms = forms_with_replicas(plan, 8, refusal);
  REQUIRE(forms.size() == 1);
  Plan form = forms.front();
  REQUIRE(form.choices.recompute == Recompute::full);
  REQUIRE(form.choices.recompute_layers > 1);
  const auto probability = [](const Plan& one) {
    const Memory memory = predict_memory(one);
    return fit_probability(memory.needed, memory.capacity, spread_of(*one.job));
  };
  CHECK(probability(form) >= 0.95);
  --form.choices.recompute_layers;
  CHECK(probability(form) < 0.95);
}

TEST_CASE("as many nodes are lost at once as a Poisson number with the mean number in repair") {
  CHECK(nodes_lost_at_most(0, 1) == 0);
  // Mean 1: P(more than 9) = 1.1e-7, P(more than 8) = 1.1e-6.
  CHECK(nodes_lost_at_most(0.1, 10) == 9);
}

}  // namespace
}  // namespace orrery::planner
