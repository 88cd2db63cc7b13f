// What selective recomputation of chosen modules saves and costs.
#include <algorithm>
#include <catch2/catch.hpp>

#include "base/random.h"
#include "planner/closed_form/estimator.h"
#include "planner/closed_form/figures.h"
#include "planner/closed_form/memory_model.h"
#include "planner/evaluation/evaluation.h"
#include "planner/space/space.h"
#include "program/operator_work.h"
#include "sim/simulator.h"
#include "tests/support/jobs.h"

namespace orrery::planner {
namespace {

std::vector<std::shared_ptr<Job>> jobs() {
  std::vector<std::shared_ptr<Job>> all = {
      test::make_job("llama3-8b", "dgx-h100", 8, 16, 2048),
      test::make_job("mixtral-8x7b", "dgx-h100", 8, 16, 2048),
      test::make_job("gpt3-175b", "dgx-a100", 8, 16, 2048, "megatron-lm-2022"),
      test::make_job("deepseek-v3", "dgx-h100", 32, 64, 2048)};
  for (const auto& job : all) {
    // Enough of a model for every module, few enough layers for a simulation.
    Workload& workload = job->workload;
    workload.transformer->layers = workload.layers = 8;
    workload.operators = transformer_operators(*workload.transformer);
  }
  return all;
}

bool subset(ModuleSet less, ModuleSet more) {
  return (less & more) == less;
}

TEST_CASE(
    "what more modules run again takes less memory and more FLOPs, and all of them less than all layers") {
  for (const auto& job : jobs()) {
    Choices c;
    c.tp = 2;
    c.sequence_parallel = true;
    c.dp = job->cluster.devices() / 2;
    MemoryModel memory(job);
    const auto at = [&](Recompute kind, ModuleSet modules) {
      c.recompute = kind;
      c.recompute_modules = modules;
      return std::pair(memory.predict(c).total, hardware_flops({job, c}));
    };
    const ModuleSet all = modules_of(job->workload, 0xff);
    std::map<ModuleSet, std::pair<double, double>> found;
    for (int bits = 1; bits < 256; ++bits)
      if (const auto set = static_cast<ModuleSet>(bits); subset(set, all))
        found[set] = at(Recompute::selective, set);
    const auto none = at(Recompute::none, 0), full = at(Recompute::full, 0);
    INFO(job->workload.name);
    CHECK(found.size() > 10);
    for (const auto& [set, one] : found) {
      CHECK(one.first < none.first);
      CHECK(one.second >= none.second);
      CHECK(one.first > full.first);
      CHECK(one.second < full.second);
      for (const auto& [more, other] : found) {
        if (!subset(set, more)) continue;
        CHECK(other.first <= one.first);
        CHECK(other.second >= one.second);
      }
    }
    CHECK(found.at(all).first < 0.75 * none.first + 0.25 * full.first);
  }
}

TEST_CASE("running some layers again never takes more memory than running none") {
  for (const auto& job : jobs())
    for (const int pp : {1, 2, 4}) {
      Choices c;
      c.pp = pp;
      c.dp = job->cluster.devices() / pp;
      MemoryModel memory(job);
      const double none = memory.predict(c).total;
      c.recompute = Recompute::full;
      const int layers = job->workload.layers / pp;
      double fewer = none;
      for (c.recompute_layers = 1; c.recompute_layers <= layers; ++c.recompute_layers) {
        const double now = memory.predict(c).total;
        INFO(job->workload.name << ", pp " << pp << ", " << c.recompute_layers << " layers");
        CHECK(now <= none);
        // The last one runs its backward at once: its input is kept for nothing.
        if (c.recompute_layers < layers) CHECK(now <= fewer);
        fewer = now;
      }
    }
}

TEST_CASE("plans that run chosen modules again: bounds hold, the closed form is near the simulation") {
  sim::SimulationOptions options;
  options.keep_timeline = false;
  for (const auto& job : jobs()) {
    Pins pins;
    pins.any_runtime = true;
    const std::vector<Choices> space = enumerate(job, pins);
    const ModuleSet all = modules_of(job->workload, 0xff);
    const CounterRandom random(11, 0);
    std::vector<Plan> plans;
    for (std::uint64_t i = 0; plans.size() < 12; i += 2) {
      Choices c = space[random.bits(i) % space.size()];
      c.recompute = Recompute::selective;
      c.recompute_layers = 0;
      c.recompute_modules = all & static_cast<ModuleSet>(random.bits(i + 1));
      if (c.overlap_experts) c.recompute_modules &= ~module_bit("moe");
      if (c.recompute_modules != 0) plans.push_back({job, c});
    }
    const auto simulations = sim::simulate_all(plans, options, 2);
    Estimator estimator(job);  // one for all: what it keeps of one set is not another's
    std::vector<double> errors;
    for (std::size_t i = 0; i < plans.size(); ++i) {
      const StepTimes times = estimator.times(plans[i].choices);
      const double simulated_s = simulations[i].step_time_s;
      INFO(job->workload.name << ": " << describe(plans[i]));
      CHECK(times.lower_bound_s <= simulated_s * (1 + 1e-9));
      CHECK(estimate_step_seconds(plans[i]) == Approx(times.estimate_s));
      errors.push_back(std::abs(times.estimate_s / simulated_s - 1));
      // The layout's bound of the search is of the least that any set computes.
      Choices none = plans[i].choices;
      none.recompute = Recompute::none;
      none.recompute_modules = 0;
      CHECK(estimator.layout_bound_s(none) <= simulated_s * (1 + 1e-9));
      CHECK(estimator.layout_bound_s(none) <= estimator.layout_bound_s(plans[i].choices) * (1 + 1e-12));
    }
    std::nth_element(errors.begin(), errors.begin() + 6, errors.end());
    CHECK(errors[6] < 0.06);
  }
}

}  // namespace
}  // namespace orrery::planner
