#include "planner/space/order_choice.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <limits>
#include <numeric>

#include "base/random.h"
#include "planner/closed_form/graph_cuts.h"
#include "planner/closed_form/pipeline_cut.h"
#include "planner/space/space.h"
#include "planner/space/split_choice.h"
#include "sim/simulator.h"
#include "tests/support/jobs.h"
#include "workloads/graph_layers.h"
#include "workloads/linear_order.h"

namespace orrery::planner {
namespace {

using test::make_job;

Operator product(const std::string& name, std::vector<int> inputs, std::int64_t width) {
  Operator op;
  op.kind = OperatorKind::linear;
  op.name = name;
  op.inputs = std::move(inputs);
  op.matmuls = {{1, width, width, 1}};
  op.output_elements = width;
  ParameterTensor weight;
  weight.name = name + ".weight";
  weight.shape = {width, width};
  op.parameters = {weight};
  return op;
}

// Two towers of four products each, which the file lists in turn, joined at the end.
std::shared_ptr<Job> towers() {
  auto job = make_job("vgg16", "v100-ib100", 2, 256, 0);
  Workload& w = job->workload;
  w = {};
  w.name = "towers";
  for (int i = 0; i < 4; ++i)
    for (int tower = 0; tower < 2; ++tower)
      w.operators.push_back(product(std::string(tower == 0 ? "a" : "b") + std::to_string(i),
                                    i == 0 ? std::vector<int>{} : std::vector<int>{2 * i - 2 + tower}, 4096));
  Operator join;
  join.kind = OperatorKind::elementwise;
  join.name = "join";
  join.inputs = {6, 7};
  join.output_elements = 4096;
  w.operators.push_back(join);
  w.operators.push_back(product("head", {8}, 1024));
  w.operators.back().matmuls = {{1, 1024, 4096, 1}};
  w.layers = assign_layers(&w.operators);
  return job;
}

double best_cut_s(const std::shared_ptr<const Job>& job, Choices choices) {
  Geometries geometries(job);
  GraphCuts cuts(job);
  double best = std::numeric_limits<double>::infinity();
  for (const auto& cut : cuts.of(choices, geometries.of(choices))) {
    choices.stage_layers = cut;
    sim::SimulationOptions options;
    options.keep_timeline = false;
    best = std::min(best, sim::simulate(Plan{job, choices}, options).step_time_s);
  }
  return best;
}

TEST_CASE("a tower is run through before the next is begun: one tensor crosses instead of two") {
  const auto job = towers();
  const auto chosen = with_order(job, {});
  REQUIRE(chosen.get() != job.get());
  const auto& operators = chosen->workload.operators;
  for (int i = 1; i < 4; ++i) CHECK(operators[static_cast<std::size_t>(i)].name[0] == operators[0].name[0]);
  Choices choices;
  choices.pp = 2;
  choices.micro_batch = 32;
  CHECK(best_cut_s(chosen, choices) < best_cut_s(job, choices));
  choices.stage_layers = {};
  CHECK(cut_excess(Plan{chosen, choices}) >= 0);
  choices.pp = 1;
  choices.dp = 2;
  CHECK(cut_excess(Plan{chosen, choices}) == 0);
}

TEST_CASE("a pin leaves the order as it is without it, and an answer's layers can be pinned") {
  const auto job = make_job("dlrm-sparse", "aws-g6-48xlarge", 32, 8192, 0, "deepspeed");
  const auto chosen = with_order(job, {});
  REQUIRE(chosen->workload.layers > job->workload.layers);
  const auto same_as_chosen = [&](const Pins& pins) {
    const auto& own = with_order(job, pins)->workload;
    REQUIRE(own.operators.size() == chosen->workload.operators.size());
    for (std::size_t i = 0; i < own.operators.size(); ++i) {
      CHECK(own.operators[i].name == chosen->workload.operators[i].name);
      CHECK(own.operators[i].layer == chosen->workload.operators[i].layer);
    }
  };
  for (const int pp : {1, 2, 4, 8}) {
    Pins pins;
    pins.pp = pp;
    same_as_chosen(pins);
  }
  Pins pins;
  pins.pp = 2;
  pins.stage_layers = {1, chosen->workload.layers - 1};
  same_as_chosen(pins);
  CHECK_FALSE(enumerate(with_order(job, pins), pins).empty());
  // Of the file's own layers, as its author counts them.
  pins.stage_layers = {1, job->workload.layers - 1};
  CHECK(with_order(job, pins).get() == job.get());
}

TEST_CASE("layered graphs, transformers and numbered layers stay in their order") {
  for (const auto& job : {make_job("resnet50", "v100-ib100", 4, 64, 0),
                          make_job("vgg16", "v100-ib100", 4, 64, 0), make_job("gpt2", "dgx-a100", 4, 8, 128)})
    CHECK(with_order(job, {}).get() == job.get());
  const auto numbered = towers();
  for (Operator& op : numbered->workload.operators) op.layer = 0;
  numbered->workload.layers = 1;
  CHECK(with_order(numbered, {}).get() == numbered.get());
}

// Every topological order of a small graph.
void for_each_order(const std::vector<std::vector<int>>& inputs,
                    const std::function<void(const std::vector<int>&)>& visit) {
  const int count = static_cast<int>(inputs.size());
  std::vector<int> order;
  std::vector<bool> placed(inputs.size(), false);
  const std::function<void()> place = [&] {
    if (static_cast<int>(order.size()) == count) return visit(order);
    for (int v = 0; v < count; ++v) {
      const auto& in = inputs[static_cast<std::size_t>(v)];
      if (placed[static_cast<std::size_t>(v)] ||
          !std::all_of(in.begin(), in.end(), [&](int i) { return placed[static_cast<std::size_t>(i)]; }))
        continue;
      placed[static_cast<std::size_t>(v)] = true;
      order.push_back(v);
      place();
      order.pop_back();
      placed[static_cast<std::size_t>(v)] = false;
    }
  };
  place();
}

TEST_CASE("the heuristic over orders stays within its bound of the best order and cut of random graphs") {
  double worst = 1;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const CounterRandom random(9, seed);
    std::uint64_t draw = 0;
    const int count = 4 + static_cast<int>(random.bits(draw++) % 4);
    const int stages = 2 + static_cast<int>(random.bits(draw++) % 2);
    Workload w;
    std::vector<std::vector<int>> inputs;
    for (int v = 0; v < count; ++v) {
      std::vector<int> in;
      for (int u = 0; u < v; ++u)
        if (random.bits(draw++) % 3 == 0) in.push_back(u);
      w.operators.push_back(
          product("op" + std::to_string(v), in, 1 + static_cast<int>(random.bits(draw++) % 9)));
      w.operators.back().layer = v;
      inputs.push_back(std::move(in));
    }
    w.layers = count;
    // Operators are layers; they take their width in time, and a message a fifth of it.
    const auto slowest = [&](const std::vector<int>& order) {
      PipelineChain chain;
      chain.compute_s.emplace_back();
      chain.crossing_s.emplace_back(static_cast<std::size_t>(count) + 1, 0.0);
      for (int position = 0; position < count; ++position) {
        const auto at = static_cast<std::size_t>(order[static_cast<std::size_t>(position)]);
        const auto size = static_cast<double>(w.operators[at].output_elements);
        chain.compute_s.front().push_back(size);
        int last = position;
        for (int later = position + 1; later < count; ++later) {
          const auto& in = inputs[static_cast<std::size_t>(order[static_cast<std::size_t>(later)])];
          if (std::count(in.begin(), in.end(), static_cast<int>(at)) > 0) last = later;
        }
        for (int cut = position + 1; cut <= last; ++cut)
          chain.crossing_s.front()[static_cast<std::size_t>(cut)] += size / 5;
      }
      const std::vector<PipelineStage> devices(static_cast<std::size_t>(stages));
      return std::make_pair(optimal_cut(chain, devices)->slowest_s, least_slowest_stage_s(chain, devices));
    };
    double best = std::numeric_limits<double>::infinity(), least = 0, found = best;
    for_each_order(inputs, [&](const std::vector<int>& order) {
      const auto [seconds, bound] = slowest(order);
      best = std::min(best, seconds);
      least = bound;
      CHECK(seconds >= bound * (1 - 1e-12));
    });
    for (const auto& order : linear_orders(w)) found = std::min(found, slowest(order).first);
    INFO("seed " << seed);
    CHECK(found >= best * (1 - 1e-12));
    // What JSON's cut_excess says is no less than the true distance from the best.
    CHECK(found / least >= found / best * (1 - 1e-12));
    worst = std::max(worst, found / best);
  }
  CHECK(worst < 1.5);
}

TEST_CASE("without transfers every order has a cut within the mean and the longest layer") {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const CounterRandom random(10, seed);
    std::uint64_t draw = 0;
    const auto count = 3 + random.bits(draw++) % 20;
    PipelineChain chain;
    chain.compute_s.emplace_back();
    for (std::uint64_t i = 0; i < count; ++i)
      chain.compute_s.front().push_back(static_cast<double>(1 + random.bits(draw++) % 30));
    chain.crossing_s.emplace_back(count + 1, 0.0);
    const std::vector<PipelineStage> stages(1 + random.bits(draw++) % 3);
    const auto& seconds = chain.compute_s.front();
    const double mean =
        std::accumulate(seconds.begin(), seconds.end(), 0.0) / static_cast<double>(stages.size());
    const double slowest = optimal_cut(chain, stages)->slowest_s;
    CHECK(slowest <= mean + *std::max_element(seconds.begin(), seconds.end()));
    CHECK(slowest >= least_slowest_stage_s(chain, stages));
  }
}

}  // namespace
}  // namespace orrery::planner
