#include <catch2/catch.hpp>
#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "base/random.h"
#include "cost/collective_cost.h"
#include "measurements/calibration/calibrate.h"
#include "measurements/calibration/doubts.h"
#include "planner/closed_form/estimator.h"
#include "planner/closed_form/figures.h"
#include "planner/evaluation/hardware.h"
#include "planner/uncertainty/outlook.h"
#include "planner/uncertainty/site.h"
#include "program/measured/plans_alike.h"
#include "program/runtime_profile.h"
#include "sim/simulator.h"
#include "topologies/named_network.h"
#include "topologies/readers/catalog.h"
#include "workloads/readers/catalog.h"

using namespace orrery;
using namespace orrery::measurements;
using planner::Factor;

namespace {

std::shared_ptr<Job> job_of(const std::string& workload, int nodes, const Cluster& cluster) {
  auto job = std::make_shared<Job>();
  job->workload = load_workload(workload);
  job->cluster = with_nodes(cluster, nodes);
  job->runtime = default_runtime(RuntimeUse::gpu);
  job->training.seq_len = 2048;
  job->training.global_batch = 64;
  job->training.precision = DType::bf16;
  return job;
}

Plan plan_of(const std::shared_ptr<Job>& job, int tp, int pp, int micro_batch) {
  Plan plan{job, {}};
  plan.choices.tp = tp;
  plan.choices.pp = pp;
  plan.choices.dp = job->cluster.devices() / (tp * pp);
  plan.choices.micro_batch = micro_batch;
  plan.choices.sequence_parallel = tp > 1;
  plan.choices.zero = 1;
  plan.choices.recompute = Recompute::selective;
  check_plan(plan);
  return plan;
}

std::vector<Plan> plans(const Cluster& cluster) {
  std::vector<Plan> all;
  for (const char* workload : {"llama3-8b", "llama2-7b"})
    for (const int nodes : {1, 2}) {
      const auto job = job_of(workload, nodes, cluster);
      for (const auto& [tp, pp, mb] : {std::tuple{2, 1, 1}, {4, 1, 2}, {8, 1, 1}, {2, 2, 1}, {4, 2, 1}})
        all.push_back(plan_of(job, tp, pp, mb));
    }
  return all;
}

// Steps as they are in a world, to within a percent.
std::vector<StepRow> measured_in(const planner::World& world, const std::vector<Plan>& all) {
  std::vector<StepRow> rows;
  const CounterRandom random(9, 9);
  for (std::size_t i = 0; i < all.size(); ++i)
    rows.push_back({all[i], planner::model_effect(all[i].job->workload),
                    planner::estimate_step_seconds({planner::job_in(world, *all[i].job), all[i].choices}) *
                        std::exp(0.01 * random.normal(i)),
                    0});
  return rows;
}

StepPrior prior_of(const Plan& plan) {
  StepPrior prior;
  prior.factor = planner::spread_of(*plan.job).factor;
  return prior;
}

}  // namespace

TEST_CASE("a posterior lies between what was thought and what was seen, and nothing seen changes nothing") {
  const std::vector<Effect> effects = {{"a", 0.2}, {"b", 0.5}};
  const Posterior nothing = posterior_of(effects, {}, 8);
  CHECK(nothing.mean == std::vector<double>{0, 0});
  CHECK(nothing.covariance_of(0, 0) == Approx(0.04));
  const Posterior one = posterior_of(effects, {{{1, 0}, 0.2, 0.2, 1}}, 1e9);
  CHECK(one.mean[0] == Approx(0.1));  // two variances alike
  CHECK(one.said == std::vector<bool>{true, false});
  CHECK(one.covariance_of(1, 1) == Approx(0.25));
  // A row that is far off counts less than one that agrees.
  std::vector<Seen> rows(6, Seen{{1, 0}, 0.1, 0.05, 1});
  const double before = posterior_of(effects, rows, 4).mean[0];
  rows.push_back({{1, 0}, -2, 0.05, 1});
  CHECK(std::abs(posterior_of(effects, rows, 4).mean[0] - before) < 0.03);
}

TEST_CASE("five steps of a site predict its others, with intervals that narrow and hold") {
  const Cluster cluster = load_cluster("dgx-h100");
  planner::World world;
  world[Factor::clock] = 0.12;
  world[Factor::communication] = 0.25;
  world += planner::of_everything(0.05);
  const std::vector<StepRow> all = measured_in(world, plans(cluster));
  std::vector<StepRow> given, others;
  for (std::size_t i = 0; i < all.size(); ++i) (i % 4 == 1 ? given : others).push_back(all[i]);
  REQUIRE(given.size() == 5);
  const StepFit fit(given, prior_of(all.front().plan));
  double before = 0, after = 0;
  for (const StepRow& row : others) {
    const auto was = fit.predict_before(row), is = fit.predict(row);
    before += std::abs(was.seconds / row.measured_s - 1) / static_cast<double>(others.size());
    after += std::abs(is.seconds / row.measured_s - 1) / static_cast<double>(others.size());
    CHECK(is.sd < 0.6 * was.sd);
    CHECK(std::abs(std::log(is.seconds / row.measured_s)) < 1.645 * is.sd);
  }
  CHECK(before > 0.12);
  CHECK(after < 0.03);
  const HeldOut held_out = StepFit(all, prior_of(all.front().plan)).held_out();
  CHECK(held_out.rows == 20);
  CHECK(held_out.mape_after < 0.03);
  CHECK(held_out.mape_before == Approx(before).margin(0.03));
}

TEST_CASE("rows of one plan teach the same pooled and apart") {
  const std::vector<Plan> all = plans(load_cluster("dgx-h100"));
  std::vector<StepRow> rows = measured_in(planner::of_everything(0.1), {all[0], all[1], all[2]});
  std::vector<StepRow> apart = rows;
  for (int i = 0; i < 3; ++i) apart.push_back(rows[0]);
  rows[0].times = 4;
  const StepPrior prior = prior_of(all.front());
  const StepFit pooled(rows, prior), each(apart, prior);
  REQUIRE(pooled.effects().size() == each.effects().size());
  CHECK(pooled.posterior().scale == Approx(each.posterior().scale));
  for (std::size_t e = 0; e < pooled.effects().size(); ++e) {
    CHECK(pooled.posterior().mean[e] == Approx(each.posterior().mean[e]).margin(1e-9));
    CHECK(pooled.posterior().covariance_of(e, e) == Approx(each.posterior().covariance_of(e, e)));
  }
}

TEST_CASE("factors that steps say nothing of stay as they were") {
  const Cluster cluster = load_cluster("dgx-h100");
  std::vector<Plan> inside;
  for (const Plan& plan : plans(cluster))
    if (plan.job->cluster.nodes() == 1) inside.push_back(plan);
  const StepPrior prior = prior_of(inside.front());
  const StepFit fit(measured_in(planner::of_everything(0.1), inside), prior);
  for (const Factor factor : {Factor::between, Factor::experts}) {
    const auto f = static_cast<std::size_t>(factor);
    CHECK(fit.posterior().mean[f] == 0);
    CHECK(fit.posterior().covariance_of(f, f) == Approx(prior.factor[f] * prior.factor[f]));
  }
}

TEST_CASE("links are learned from collectives: networks at half their rate, latencies twice as long") {
  const Cluster cluster = load_cluster("dgx-h100");
  planner::World world;
  world[Factor::between] = std::log(2);
  world[Factor::latency] = std::log(1.6);
  const Cluster truth = planner::cluster_in(world, with_intra_node_times(cluster, 0.9));
  std::vector<MeasuredCollective> rows;
  for (const int nodes : {1, 2}) {
    const Cluster sized = with_nodes(truth, nodes);
    std::vector<int> devices;
    for (int d = 0; d < sized.devices(); ++d) devices.push_back(d);
    const Network network(sized);
    const GroupShape shape = group_shape(network, devices);
    for (const CollectiveKind kind :
         {CollectiveKind::all_reduce, CollectiveKind::all_gather, CollectiveKind::all_to_all})
      for (double bytes = 1024; bytes < 5e9; bytes *= 4)
        rows.push_back(
            {"f", 1, kind, bytes, plan_collective(kind, bytes, shape, sized).seconds(bytes), nodes, 8});
  }
  const Links links = learn_links(cluster, rows);
  REQUIRE(links.learned.size() == 3);
  CHECK(std::exp(links.learned[0].mean) == Approx(1 / 0.9).epsilon(0.04));
  CHECK(std::exp(links.learned[1].mean) == Approx(2).epsilon(0.06));
  CHECK(std::exp(links.learned[2].mean) == Approx(1.6).epsilon(0.1));
  CHECK(links.held_out.mape_after < 0.06);
  CHECK(links.held_out.mape_before > 0.2);
  CHECK(links.departures.empty());
  const double seconds = rows.back().seconds;
  rows.back().seconds = 250 * seconds;
  CHECK_THROWS_WITH(learn_links(cluster, rows), Catch::Contains("times what is predicted"));
  rows.back().seconds = seconds;
  rows.front().seconds = 1e-12;
  CHECK_THROWS_AS(learn_links(cluster, rows), NoAnswer);
}

TEST_CASE(
    "a slow network is learned where links inside nodes are what is thought to hold a collective back") {
  const Cluster cluster = load_cluster("dgx-h100");
  // As nccl-tests of one node and of two see it: a latency, and a bus bandwidth.
  const auto rows_of = [](int nodes, double latency_s, double bus_bytes_per_s,
                          std::vector<MeasuredCollective>* rows) {
    const int devices = 8 * nodes;
    for (double bytes = 1024; bytes <= 1073741824.0; bytes *= 2)
      rows->push_back({"f", 1, CollectiveKind::all_reduce, bytes,
                       latency_s + bytes * 2 * (devices - 1) / devices / bus_bytes_per_s, nodes, 8});
  };
  const auto seconds_of_a_gibibyte = [](const Links& links) {
    const Cluster sized = with_nodes(links.cluster, 2);
    std::vector<int> devices;
    for (int d = 0; d < sized.devices(); ++d) devices.push_back(d);
    const Network network(sized);
    return plan_collective(CollectiveKind::all_reduce, 1073741824.0, group_shape(network, devices), sized)
        .seconds(1073741824.0);
  };
  for (const bool one_node : {true, false}) {
    std::vector<MeasuredCollective> rows;
    if (one_node) rows_of(1, 15e-6, 450e9, &rows);
    rows_of(2, 40e-6, 90e9, &rows);
    const Links links = learn_links(cluster, rows);
    INFO(one_node);
    CHECK(links.learned[1].source != kNotMeasured);
    CHECK(std::exp(links.learned[1].mean) > 3.5);
    CHECK(std::exp(links.learned[1].mean) < 12);
    CHECK(seconds_of_a_gibibyte(links) == Approx(0.0224).epsilon(0.1));  // 4.7 ms as it is
    if (one_node) CHECK(std::exp(links.learned[0].mean) == Approx(1).epsilon(0.15));
  }
  // Of one node nothing is known of the network.
  std::vector<MeasuredCollective> rows;
  rows_of(1, 15e-6, 450e9, &rows);
  CHECK(learn_links(cluster, rows).learned[1].source == kNotMeasured);
}

TEST_CASE("what large messages took is what is predicted of them, whatever small ones say") {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/l40s.textproto";
  write_file_atomically(file,
                        "name: \"l40s\" source: \"ours\"\n"
                        "groups { count: 4 node { name: \"8x L40S\" device: \"l40s\" devices: 8\n"
                        "  intra { kind: PCIE bandwidth_bytes_per_s: 24e9 latency_s: 2e-6 }\n"
                        "  nic { count: 1 bandwidth_bytes_per_s: 12.5e9 latency_s: 2e-6 direct: true\n"
                        "        pcie_bandwidth_bytes_per_s: 24e9 } } }\n"
                        "fabric { kind: STAR transport: ROCE switch_latency_s: 5e-7 }\n");
  const Cluster cluster = load_cluster(file);
  constexpr double kLargest = 1 << 30;
  struct Measured {
    int nodes;
    double latency_s, bus_bytes_per_s;
    double seconds(double bytes) const {
      const int devices = 8 * nodes;
      return latency_s + bytes * 2 * (devices - 1) / devices / bus_bytes_per_s;
    }
  };
  const auto check = [&](const std::vector<Measured>& tests, double most_off) {
    std::vector<MeasuredCollective> rows;
    for (const Measured& test : tests)
      for (double bytes = 1024; bytes <= kLargest; bytes *= 2)
        rows.push_back({"f", 1, CollectiveKind::all_reduce, bytes, test.seconds(bytes), test.nodes, 8});
    const Links links = learn_links(cluster, rows);
    for (const Measured& test : tests) {
      const Cluster sized = with_nodes(links.cluster, test.nodes);
      std::vector<int> devices;
      for (int d = 0; d < sized.devices(); ++d) devices.push_back(d);
      const GroupShape shape = group_shape(Network(sized), devices);
      for (double bytes = kLargest / 8; bytes <= kLargest; bytes *= 2) {
        INFO(tests.size() << " tests, " << test.nodes << " nodes, " << bytes);
        CHECK(plan_collective(CollectiveKind::all_reduce, bytes, shape, sized).seconds(bytes) ==
              Approx(test.seconds(bytes)).epsilon(most_off));
      }
    }
    // What is measured again says the same again.
    std::vector<MeasuredCollective> twice = rows;
    twice.insert(twice.end(), rows.begin(), rows.end());
    const Links again = learn_links(cluster, twice);
    for (std::size_t p = 0; p < 3; ++p)
      CHECK(again.learned[p].mean == Approx(links.learned[p].mean).margin(1e-9));
  };
  check({{1, 40e-6, 12e9}}, 0.04);
  check({{2, 80e-6, 9e9}}, 0.05);
  check({{1, 40e-6, 12e9}, {2, 80e-6, 9e9}}, 0.05);
}

TEST_CASE("no algorithm moves fewer bytes than must leave a node, or a device") {
  const Cluster cluster = load_cluster("dgx-h100");  // 400 GB/s a node, 450 GB/s a device
  constexpr double kBytes = 1 << 30;
  const auto learn = [&](CollectiveKind kind, int nodes, double least_s, double times) {
    return learn_links(cluster, {{"f", 3, kind, kBytes, least_s * times, nodes, 8}});
  };
  const std::vector<std::tuple<CollectiveKind, int, double>> least = {
      {CollectiveKind::all_reduce, 4, kBytes / 400e9},
      {CollectiveKind::all_gather, 4, kBytes * 3 / 4 / 400e9},
      {CollectiveKind::all_to_all, 4, kBytes * 3 / 4 * 8 / 400e9},
      {CollectiveKind::all_reduce, 1, kBytes / 450e9},
      {CollectiveKind::reduce_scatter, 1, kBytes * 7 / 8 / 450e9}};
  for (const auto& [kind, nodes, seconds] : least) {
    INFO(name_of(kind) << " " << nodes);
    CHECK_THROWS_WITH(learn(kind, nodes, seconds, 0.99),
                      Catch::StartsWith("f:3: ") && Catch::Contains("GB/s there"));
    CHECK_NOTHROW(learn(kind, nodes, seconds, 1.05));
  }
}

TEST_CASE("a calibrated cluster predicts what was measured, on more nodes too, and is stored whole") {
  const Cluster cluster = load_cluster("dgx-h100");
  const std::vector<StepRow> all = measured_in(planner::of_everything(0.3), plans(cluster));
  Measurements measured;
  measured.files.push_back({"steps.csv", "", static_cast<int>(all.size()), 0});
  for (const StepRow& row : all) {
    evidence::ExplicitRow as_read;
    as_read.plan = row.plan;
    as_read.measured_s = row.measured_s;
    measured.steps.push_back({"steps.csv", 1, row.model, as_read});
  }
  const Calibrated calibrated = calibrate(cluster, measured);
  REQUIRE(calibrated.cluster.calibration);
  CHECK(calibrated.cluster.calibration->steps == 20);
  const Cluster again = rechecked(calibrated.cluster, "again");
  for (const StepRow& row : all) {
    Job job = *row.plan.job;
    const double uncalibrated_sd = [&] {
      planner::Outlook outlook(row.plan.job);
      const planner::Range range = planner::step_range(outlook.response(row.plan.choices), outlook.spread());
      return std::log(range.high / range.low);
    }();
    job.cluster = with_nodes(again, row.plan.job->cluster.nodes());
    planner::calibrate(&job);
    const auto shared = std::make_shared<const Job>(job);
    CHECK(planner::estimate_step_seconds({shared, row.plan.choices}) == Approx(row.measured_s).epsilon(0.04));
    planner::Outlook outlook(shared);
    CHECK(outlook.spread().rests_on.runtime == Foundation::calibrated);
    const planner::Range range = planner::step_range(outlook.response(row.plan.choices), outlook.spread());
    CHECK(std::log(range.high / range.low) < 0.6 * uncalibrated_sd);
  }
  // Of other software they say less: nothing of its kernels.
  Job other = *all.front().plan.job;
  other.cluster = with_nodes(again, 1);
  other.runtime.name = "another";
  const RuntimeProfile before = other.runtime;
  const double matmul_sd = planner::spread_of(*all.front().plan.job).factor[0];
  CHECK(planner::spread_of(other).rests_on.runtime == Foundation::assumed);
  CHECK(planner::spread_of(other).factor[0] > 0.9 * matmul_sd);
  CHECK(calibrated.doubts.empty());
  measured.steps.clear();
  CHECK_THROWS_AS(calibrate(cluster, measured), UserError);
  measured.ignore("steps.csv", 2, "no step time is stated");
  CHECK_THROWS_WITH(calibrate(cluster, measured),
                    Catch::StartsWith("nothing could be learned: steps.csv:2: no step time is stated ("));
}

TEST_CASE(
    "what plans share that no mechanism explains is learned of those measured, and said of those alike") {
  const Cluster cluster = load_cluster("dgx-h100");
  std::vector<StepRow> all = measured_in({}, plans(cluster));
  for (StepRow& row : all)
    if (row.plan.choices.pp > 1) row.measured_s *= 1.3;  // as no factor does
  std::vector<StepRow> given, others;
  for (std::size_t i = 0; i < all.size(); ++i) (i < 5 ? given : others).push_back(all[i]);
  const StepPrior prior = prior_of(all.front().plan);
  StepPrior apart = prior;
  apart.alike = 1e-3;
  apart.row = prior.unmeasured;
  const StepFit fit(given, prior), without(given, apart);
  double after = 0, after_without = 0;
  for (const StepRow& row : others) {
    after += std::abs(fit.predict(row).seconds / row.measured_s - 1) / 15;
    after_without += std::abs(without.predict(row).seconds / row.measured_s - 1) / 15;
  }
  CHECK(after < 0.7 * after_without);

  // Plans on the calibrated cluster are predicted likewise, by both clocks, in an interval as wide.
  Measurements measured;
  for (const StepRow& row : given) {
    evidence::ExplicitRow as_read;
    as_read.plan = row.plan;
    as_read.measured_s = row.measured_s;
    measured.steps.push_back({"steps.csv", 1, row.model, as_read});
  }
  const Cluster calibrated = rechecked(calibrate(cluster, measured).cluster, "again");
  for (const std::size_t i : {5UL, 8UL, 9UL}) {
    const StepRow& row = all[i];
    Job job = *row.plan.job;
    job.cluster = with_nodes(calibrated, job.cluster.nodes());
    planner::calibrate(&job);
    const Plan plan{std::make_shared<const Job>(job), row.plan.choices};
    const StepFit::Prediction predicted = fit.predict(row);
    CHECK(planner::estimate_step_seconds(plan) == Approx(predicted.seconds).epsilon(0.01));
    planner::Outlook outlook(plan.job);
    const planner::Range range = planner::step_range(outlook.response(plan.choices), outlook.spread());
    CHECK(std::log(range.high / range.low) / (2 * kCoveredDeviations) == Approx(predicted.sd).epsilon(0.15));
    Job unlike = job;
    unlike.cluster.calibration->plans.clear();
    const Plan uncorrected{std::make_shared<const Job>(unlike), plan.choices};
    const double times = corrected_by(plan).times;
    CHECK(corrected_by(plan).steps > 0);
    CHECK(planner::estimate_step_seconds(plan) ==
          Approx(times * planner::estimate_step_seconds(uncorrected)));
    CHECK(sim::simulate(plan).step_time_s == Approx(times * sim::simulate(uncorrected).step_time_s));
    planner::Estimator estimator(plan.job);
    CHECK(estimator.times(plan.choices).lower_bound_s <= sim::simulate(plan).step_time_s * (1 + 1e-9));
  }
}

TEST_CASE("a factor of the site by which other software would come near the peak is doubted") {
  const Cluster cluster = load_cluster("dgx-h100");
  Measurements measured;
  // What Megatron-Core takes, said to be of 2022's.
  for (const Plan& plan : plans(cluster)) {
    evidence::ExplicitRow row;
    row.measured_s = planner::estimate_step_seconds(plan);
    Job job = *plan.job;
    job.runtime = catalog_runtime("megatron-lm-2022");
    job.training.fused_attention = false;
    row.plan = {std::make_shared<const Job>(job), plan.choices};
    measured.steps.push_back({"steps.csv", 1, planner::model_effect(job.workload), row});
    measured.steps.back().row.measured_s *= 0.6;
  }
  const Calibrated calibrated = calibrate(cluster, measured);
  REQUIRE(calibrated.doubts.size() == 1);
  CHECK_THAT(calibrated.doubts.front(),
             Catch::Contains("of the devices' peak: was megatron-lm-2022 what ran"));
}

TEST_CASE("rows far from what is predicted are refused by line, factor and the mistake that it may be") {
  const Cluster cluster = load_cluster("dgx-h100");
  const std::vector<Plan> all = plans(cluster);
  // Of the first plans with each so many times as long as predicted.
  const auto calibrated = [&](const std::vector<double>& times, const std::string& column) {
    Measurements measured;
    for (std::size_t i = 0; i < times.size(); ++i) {
      evidence::ExplicitRow row;
      row.plan = all[i];
      row.measured_s = times[i] * planner::estimate_step_seconds(all[i]);
      measured.steps.push_back({"s.csv", static_cast<int>(i) + 2, "model", row});
      measured.steps.back().timed_by = column;
    }
    return calibrate(cluster, measured);
  };
  CHECK_NOTHROW(calibrated({1.1, 1.2, 1.15}, "step_time_s"));
  CHECK_THROWS_WITH(calibrated({1, 24, 1.1, 30}, "step_time_s"),
                    Catch::StartsWith("s.csv:3: ") && Catch::Contains("24.0 times what is predicted;") &&
                        Catch::Contains("as far off: 1 row more"));
  CHECK_THROWS_WITH(calibrated({9, 9}, "tokens_per_s"),
                    Catch::Contains("is 'tokens_per_s' one device's of 8"));
  CHECK_THROWS_AS(calibrated({9, 9}, "tokens_per_s"), NoAnswer);
  CHECK_THROWS_AS(calibrated({0.19, 0.19}, "step_time_s"), NoAnswer);
  // Two plans alike that contradict each other: no factor makes one three times as slow and the other as
  // fast.
  CHECK_THROWS_AS(calibrated({0.5, 4.5, 0.5, 4.5, 0.5}, "step_time_s"), NoAnswer);
}

TEST_CASE("counts are said in words, and only of what there is") {
  CHECK(counted_together(1, 0, 0) == "1 step");
  CHECK(counted_together(0, 63, 1) == "63 collectives and 1 product");
  CHECK(counted_together(2, 1, 3) == "2 steps, 1 collective and 3 products");
  CHECK(counted_together(0, 0, 0) == "nothing");
  // What steps say nothing of is what collectives said of it.
  const Cluster cluster = load_cluster("dgx-h100");
  Measurements measured;
  evidence::ExplicitRow row;
  row.plan = plans(cluster).front();
  row.measured_s = 1.1 * planner::estimate_step_seconds(row.plan);
  measured.steps.push_back({"s.csv", 2, "model", row});
  for (double bytes = 1024; bytes < 2e9; bytes *= 2)
    measured.collectives.push_back(
        {"f", 1, CollectiveKind::all_reduce, bytes, 80e-6 + bytes * 1.875 / 200e9, 2, 8});
  for (const Learned& learned : calibrate(cluster, measured).factors)
    CHECK_THAT(learned.source, !Catch::Contains("and not measured") && !Catch::Contains("1 steps"));
}

TEST_CASE("what makes predictions worse is refused, or doubted where it is a little worse") {
  std::vector<std::string> doubts;
  const auto check = [&](HeldOut held_out, HeldOut own) { check_learned(held_out, own, &doubts); };
  check({4, 0.2, 0.05, 1}, {4, 0.2, 0.03, 1});
  check({4, 0.02, 0.04, 1}, {4, 0.02, 0.01, 1});
  CHECK(doubts.size() == 1);
  check({5, 0.5, 0.3, 0.1}, {5, 0.5, 0.2, 1});
  REQUIRE(doubts.size() == 2);
  CHECK(doubts[1] ==
        "steps held back are 30.0% off in the mean, 50.0% before, and 10% lie within their 90% intervals: "
        "what is "
        "unlike them may be better predicted without");
  CHECK_THROWS_WITH(check({2, 0.58, 3.23, 0}, {2, 0.58, 0.4, 1}),
                    Catch::Contains("323.0% off in the mean, 58.0% before, and 0% lie"));
  CHECK_THROWS_WITH(check({}, {1, 0.3, 0.5, 1}),
                    Catch::Contains("their own mean error is 50.0%, 30.0% before"));
}

TEST_CASE("directions of a covariance give it back") {
  planner::Covariance covariance{};
  const CounterRandom random(4, 4);
  std::array<std::array<double, 3>, planner::kFactors> root{};
  std::uint64_t draws = 0;
  for (auto& row : root)
    for (double& value : row) value = random.normal(draws++);
  for (std::size_t i = 0; i < planner::kFactors; ++i)
    for (std::size_t j = 0; j < planner::kFactors; ++j)
      for (std::size_t k = 0; k < 3; ++k) covariance[i][j] += root[i][k] * root[j][k];
  const auto directions = planner::directions_of(covariance);
  for (std::size_t i = 0; i < planner::kFactors; ++i)
    for (std::size_t j = 0; j < planner::kFactors; ++j) {
      double sum = 0;
      for (const planner::World& one : directions) sum += one.log_time[i] * one.log_time[j];
      CHECK(sum == Approx(covariance[i][j]).margin(1e-6));
    }
}
