#include "program/measured/plans_alike.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "program/runtime_profile.h"
#include "topologies/readers/catalog.h"
#include "workloads/readers/catalog.h"

using namespace orrery;

namespace {

std::shared_ptr<Job> job_on(const char* cluster) {
  auto job = std::make_shared<Job>();
  job->workload = load_workload("llama3-8b");
  job->cluster = load_cluster(cluster);
  job->runtime = default_runtime(RuntimeUse::gpu);
  job->training.seq_len = 4096;
  job->training.global_batch = 64;
  return job;
}

Choices choices_of(int tp, int pp, int dp, int micro_batch) {
  Choices choices;
  choices.tp = tp;
  choices.pp = pp;
  choices.dp = dp;
  choices.micro_batch = micro_batch;
  return choices;
}

// One plan was measured, and found `log_time` slower than mechanisms say.
void measure(const Choices& choices, double log_time, Job* job) {
  SiteCalibration calibration;
  calibration.runtime = job->runtime.name;
  calibration.steps = 1;
  calibration.effects = {"plans alike, part 1"};
  calibration.mean = {log_time};
  calibration.covariance = {1e-4};
  calibration.plans = {as_measured(*job, choices)};
  calibration.alike_sd = 0.2;
  job->cluster.calibration = calibration;
}

}  // namespace

TEST_CASE("plans are less alike with each doubling in which they differ, and replicas are none of it") {
  const auto job = job_on("dgx-h100");
  const MeasuredPlan plan = as_measured(*job, choices_of(2, 1, 4, 1));
  CHECK(correlation(plan, plan) == 1);
  const double one = correlation(plan, as_measured(*job, choices_of(4, 1, 4, 1)));
  const double two = correlation(plan, as_measured(*job, choices_of(8, 1, 4, 1)));
  CHECK(one < 1);
  CHECK(two == Approx(one * one));
  // Twice the replicas of twice the batch: as many micro-batches.
  Job larger = *job;
  larger.training.global_batch *= 2;
  CHECK(correlation(plan, as_measured(larger, choices_of(2, 1, 8, 1))) == 1);
  Job other = *job;
  other.training.precision = DType::fp8;
  CHECK(correlation(plan, as_measured(other, choices_of(2, 1, 4, 1))) == Approx(one));
}

TEST_CASE("parts of measured plans give their correlations back, and leave nothing of them") {
  const auto job = job_on("dgx-h100");
  std::vector<MeasuredPlan> plans;
  for (const auto& [tp, pp, mb] : {std::tuple{1, 1, 1}, {2, 1, 1}, {2, 2, 2}, {4, 1, 4}, {8, 1, 1}})
    plans.push_back(as_measured(*job, choices_of(tp, pp, 8 / tp / pp, mb)));
  const PlansAlike alike(plans);
  for (const MeasuredPlan& a : plans) {
    const std::vector<double> of_a = alike.parts_of(a);
    CHECK(left_by(of_a) == Approx(0).margin(1e-5));
    for (const MeasuredPlan& b : plans) {
      const std::vector<double> of_b = alike.parts_of(b);
      double sum = 0;
      for (std::size_t i = 0; i < plans.size(); ++i) sum += of_a[i] * of_b[i];
      CHECK(sum == Approx(correlation(a, b)).epsilon(1e-5));
    }
  }
  const std::vector<double> between = alike.parts_of(as_measured(*job, choices_of(4, 1, 2, 1)));
  CHECK(left_by(between) > 0.05);
  CHECK(left_by(between) < 0.6);
}

TEST_CASE(
    "of many measured plans those stand for all that say most, and every step counts with its nearest") {
  const auto job = job_on("dgx-h100");
  std::vector<MeasuredPlan> all;
  for (int copy = 0; copy < 3; ++copy)
    for (const int mb : {1, 2, 64}) all.push_back(as_measured(*job, choices_of(1, 1, 1, mb)));
  const std::vector<MeasuredPlan> three = PlansAlike::chosen_from(all, 10);
  REQUIRE(three.size() == 3);  // equal ones stand for each other
  for (const MeasuredPlan& plan : three) CHECK(plan.steps == 3);
  const std::vector<MeasuredPlan> two = PlansAlike::chosen_from(all, 2);
  REQUIRE(two.size() == 2);
  CHECK(two[0].micro_batch_tokens == 4096);
  CHECK(two[1].micro_batch_tokens == 64 * 4096);
  CHECK(two[0].steps == 6);
  CHECK(PlansAlike::chosen_from({}, 10).empty());
}

TEST_CASE("a step is corrected by measured plans alike, by less the less they are, and otherwise as it was") {
  const auto job = job_on("dgx-h100");
  const Choices measured = choices_of(2, 1, 4, 1);
  CHECK(corrected_by({job, measured}).times == 1);
  measure(measured, 0.1, job.get());
  CHECK(corrected_by({job, measured}).times == Approx(std::exp(0.1)));
  CHECK(corrected_by({job, measured}).steps == 1);
  const double near = corrected_by({job, choices_of(4, 1, 2, 1)}).times;
  CHECK(near > 1.02);
  CHECK(near < std::exp(0.1));
  // Nothing is alike: plans keep their order.
  const CorrectedBy far = corrected_by({job, choices_of(1, 8, 1, 8)});
  CHECK(far.times == 1);
  CHECK(far.steps == 0);
  Job other = *job;
  other.runtime.name = "another";
  CHECK(corrected_by({std::make_shared<const Job>(other), measured}).times == 1);
}

TEST_CASE("what was measured of plans survives the cluster's file, and a damaged one is refused") {
  const auto job = job_on("dgx-h100");
  measure(choices_of(4, 1, 2, 2), -0.05, job.get());
  const Cluster again = rechecked(job->cluster, "again");
  REQUIRE(again.calibration);
  REQUIRE(again.calibration->plans.size() == 1);
  CHECK(again.calibration->alike_sd == 0.2);
  CHECK(correlation(again.calibration->plans[0], job->cluster.calibration->plans[0]) == 1);
  CHECK(again.calibration->plans[0].steps == 1);
  Cluster damaged = job->cluster;
  damaged.calibration->plans[0].tp = 0;
  CHECK_THROWS(rechecked(damaged, "again"));
  damaged = job->cluster;
  damaged.calibration->plans.push_back(damaged.calibration->plans[0]);  // more than effects
  CHECK_THROWS(rechecked(damaged, "again"));
}
