#include "planner/closed_form/graph_cuts.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>

#include "base/random.h"
#include "planner/closed_form/estimator.h"
#include "planner/evaluation/evaluation.h"
#include "planner/space/balance.h"
#include "planner/space/space.h"
#include "sim/simulator.h"
#include "tests/support/jobs.h"

namespace orrery::planner {
namespace {

using test::make_job;

double simulated_s(const std::shared_ptr<Job>& job, const Choices& choices) {
  sim::SimulationOptions options;
  options.keep_timeline = false;
  return sim::simulate(Plan{job, choices}, options).step_time_s;
}

// As the search does: the simulated best of the cuts.
double fastest_s(const std::shared_ptr<Job>& job, Choices choices,
                 const std::vector<std::vector<int>>& cuts) {
  double best = std::numeric_limits<double>::infinity();
  for (const auto& cut : cuts) {
    choices.stage_layers = cut;
    best = std::min(best, simulated_s(job, choices));
  }
  return best;
}

TEST_CASE("the optimal cut of convolutional networks beats the even one in simulation") {
  for (const char* model : {"resnet50", "vgg16"}) {
    for (const int stages : {2, 4}) {
      const auto job = make_job(model, "v100-ib100", stages, 256, 0);
      Geometries geometries(job);
      GraphCuts cuts(job);
      Choices choices;
      choices.pp = stages;
      choices.micro_batch = 8;
      const double even = simulated_s(job, choices);
      const auto found = cuts.of(choices, geometries.of(choices));
      const double optimal = fastest_s(job, choices, found);
      choices.stage_layers = balanced_cut(layer_weights(job), stages);
      const double by_flops = simulated_s(job, choices);
      INFO(model << " on " << stages << " stages: even " << even << " s, optimal " << optimal
                 << " s, balanced by FLOPs " << by_flops << " s");
      CHECK(optimal < even);
      CHECK(optimal <= by_flops * 1.001);
    }
  }
}

TEST_CASE("stages on slower devices get less of the network") {
  const auto job = make_job("resnet50", "v100-ib100", 4, 64, 0);
  Geometries even(job);
  Choices choices;
  choices.pp = 4;
  choices.micro_batch = 8;
  const auto alike = GraphCuts(job).of(choices, even.of(choices));
  auto slow = std::make_shared<Job>(*job);
  Override degraded;  // the device of the first node
  degraded.speed = 0.5;
  slow->cluster.overrides.push_back(degraded);
  Geometries uneven(slow);
  const auto unlike = GraphCuts(slow).of(choices, uneven.of(choices));
  CHECK(unlike.front().front() < alike.front().front());
  CHECK(fastest_s(slow, choices, unlike) < fastest_s(slow, choices, alike));
}

TEST_CASE("where activations fill the first stages, the cut that fits moves to the front") {
  auto job = make_job("vgg16", "v100-ib100", 4, 1024, 0);
  job->training.precision = DType::fp16;
  Choices choices;
  choices.pp = 4;
  choices.micro_batch = 64;
  choices.schedule = Schedule::one_f_one_b;
  Geometries geometries(job);
  job->cluster.profiles.front().memory_bytes = 6e9;
  GraphCuts cuts(job);
  const auto found = cuts.of(choices, geometries.of(choices));
  for (const auto& cut : found) {
    std::string text;
    for (const int n : cut) text += std::to_string(n) + " ";
    UNSCOPED_INFO(text);
  }
  REQUIRE(found.size() >= 2);
  choices.stage_layers = found[0];
  CHECK_FALSE(predict_memory(Plan{job, choices}).fits());
  choices.stage_layers = found[1];
  CHECK(predict_memory(Plan{job, choices}).fits());
}

void check_cut_bounds(std::uint64_t of_each) {
  const std::vector<std::shared_ptr<Job>> jobs = {
      make_job("resnet50", "v100-ib100", 4, 64, 0), make_job("vgg16", "v100-ib100", 4, 64, 0),
      make_job("vgg16", "pcie-4090", 8, 64, 0), make_job("dlrm", "dgx-a100", 4, 1024, 0)};
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    const std::vector<Choices> space = enumerate(jobs[j], {});
    std::vector<Plan> plans;
    const CounterRandom random(5, j);
    for (std::uint64_t i = 0; i < of_each; ++i)
      plans.push_back({jobs[j], space[random.bits(i) % space.size()]});
    sim::SimulationOptions options;
    options.keep_timeline = false;
    const auto simulations = sim::simulate_all(plans, options, 2);
    std::vector<double> errors;
    for (std::size_t i = 0; i < plans.size(); ++i) {
      const StepTimes times = Estimator(jobs[j]).times(plans[i].choices);
      std::string cut;
      for (const int n : plans[i].choices.stage_layers) cut += std::to_string(n) + " ";
      INFO(jobs[j]->workload.name << " on " << jobs[j]->cluster.name << ": " << describe(plans[i])
                                  << (plans[i].choices.overlap_grad_reduce ? "" : ", no overlap")
                                  << ", buckets of " << plans[i].choices.bucket_bytes << ", cut " << cut
                                  << "; bound " << times.lower_bound_s << ", estimate " << times.estimate_s
                                  << ", simulated " << simulations[i].step_time_s);
      CHECK(times.lower_bound_s <= simulations[i].step_time_s * (1 + 1e-9));
      errors.push_back(std::abs(times.estimate_s / simulations[i].step_time_s - 1));
    }
    std::sort(errors.begin(), errors.end());
    INFO(jobs[j]->workload.name << " on " << jobs[j]->cluster.name << ": the estimate is off by "
                                << errors[errors.size() / 2] << " (median), " << errors.back()
                                << " at worst");
    CHECK(errors[errors.size() / 2] < 0.15);
  }
}

TEST_CASE("the lower bound holds for pipelines of heterogeneous layers, and the estimate is near") {
  check_cut_bounds(40);
}

// Some minutes: test_planner "[.long]".
TEST_CASE("the lower bound holds for thousands of pipelines of heterogeneous layers", "[.long]") {
  check_cut_bounds(800);
}

}  // namespace
}  // namespace orrery::planner
