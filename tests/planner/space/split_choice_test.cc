#include "planner/space/split_choice.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>

#include "planner/closed_form/estimator.h"
#include "planner/evaluation/evaluation.h"
#include "planner/search/search.h"
#include "planner/space/space.h"
#include "sim/simulator.h"
#include "tests/support/jobs.h"
#include "workloads/graph_split.h"

namespace orrery::planner {
namespace {

using test::make_job;

std::vector<std::string> names_of_splits(const Job& job) {
  std::vector<std::string> names;
  for (const int index : split_operators(job.workload)) {
    const Operator& op = job.workload.operators[static_cast<std::size_t>(index)];
    names.push_back(op.name + (op.split == TensorSplit::row     ? " row"
                               : op.split == TensorSplit::table ? " table"
                                                                : " column"));
  }
  return names;
}

// Eight servers with a V100 each and a port of so many bytes a second.
std::shared_ptr<Job> on_network(const std::string& model, double bytes_per_s, std::int64_t batch) {
  auto job = make_job(model, "v100-ib100", 8, batch, 0);
  job->cluster.groups.front().node.nic.bandwidth_bytes_per_s = bytes_per_s;
  return job;
}

double best_s(const std::shared_ptr<Job>& job, std::optional<int> tp) {
  Pins pins;
  pins.pp = 1;
  pins.tp = tp;
  return search(job, pins, {}).plans.front().step_time_s();
}

TEST_CASE("the fully connected layers of VGG are split, its convolutions are not") {
  const auto job = with_splits(on_network("vgg16", 1.25e9, 256), {});
  const std::vector<std::string> names = names_of_splits(*job);
  REQUIRE(names.size() >= 2);
  CHECK(names[0] == "classifier.0 column");
  CHECK(names[1] == "classifier.3 row");
  for (const std::string& name : names) CHECK(name.rfind("classifier", 0) == 0);
}

TEST_CASE(
    "one weird trick: on a slow network data parallel convolutions with split layers beat data parallelism") {
  const auto job = on_network("vgg16", 1.25e9, 256);  // 10 Gb/s
  const double data_parallel = best_s(job, 1);
  const double weird = best_s(job, 8);
  INFO("data parallel " << data_parallel << " s, split " << weird << " s");
  CHECK(weird < 0.6 * data_parallel);
  CHECK(best_s(job, {}) <= weird);
}

TEST_CASE("nothing is split where the model, the pins or the machine leave nothing to split") {
  const auto gpt = make_job("gpt2", "dgx-a100", 8, 8, 128);
  CHECK(with_splits(gpt, {}).get() == gpt.get());
  const auto alone = make_job("vgg16", "v100-ib100", 1, 8, 0);
  CHECK(with_splits(alone, {}).get() == alone.get());
  Pins pins;
  pins.tp = 1;
  const auto vgg = on_network("vgg16", 1.25e9, 256);
  CHECK(with_splits(vgg, pins).get() == vgg.get());
  // Marked by hand: left as it is.
  const auto marked = with_splits(vgg, {});
  CHECK(with_splits(marked, {}).get() == marked.get());
}

TEST_CASE("large tables are spread over devices, small ones are not") {
  const auto job = with_splits(make_job("dlrm", "dgx-a100", 8, 16384, 0), {});
  int large = 0;
  for (const int index : split_operators(job->workload)) {
    const Operator& op = job->workload.operators[static_cast<std::size_t>(index)];
    if (op.kind != OperatorKind::embedding) continue;
    CHECK(op.parameter_count() > 1000);  // not the tables of 3 to 27 rows
    large += op.parameter_count() > 10'000'000;
  }
  CHECK(large == 5);
}

TEST_CASE("tables that no device holds are shared by a node's at least") {
  // 24 billion parameters: 48 GB of weights alone.
  const auto job = make_job("dlrm-terabyte", "dgx-h100", 16, 65536, 0);
  const Evaluation best = search(job, {}, {}).plans.front();
  CHECK(best.plan.choices.tp >= 8);
  CHECK(best.memory.total < best.memory.capacity);
  double large = 0, split = 0;
  for (const Operator& op : best.plan.job->workload.operators)
    if (op.kind == OperatorKind::embedding && op.parameter_count() > 10'000'000) ++large;
  for (const int index : split_operators(best.plan.job->workload))
    split +=
        best.plan.job->workload.operators[static_cast<std::size_t>(index)].parameter_count() > 10'000'000;
  CHECK(large == 8);
  CHECK(split == large);
  CHECK_THROWS_WITH(best_s(job, 1), Catch::Contains("plans fits in memory"));
}

TEST_CASE("tables whose columns do not divide are dealt out where they lie evenly, else split by rows") {
  // Twelve devices: rows of 16 do not divide. One table of 26 is 30% of all.
  const auto uneven = [](const std::shared_ptr<Job>& job) {
    int rows = 0, dealt = 0;
    for (const int index : split_operators(job->workload)) {
      const TensorSplit way = job->workload.operators[static_cast<std::size_t>(index)].split;
      CHECK(way != TensorSplit::column);
      rows += way == TensorSplit::row;
      dealt += way == TensorSplit::table;
    }
    return std::pair(rows, dealt);
  };
  Pins pins;
  pins.tp = 12;
  auto job = make_job("dlrm", "v100-ib100", 12, 12288, 0);
  const auto marked = std::const_pointer_cast<Job>(with_splits(job, pins));
  const auto [rows, dealt] = uneven(marked);
  CHECK(rows + dealt >= 8);
  CHECK(rows >= 1);  // the largest
  // 24 tables of one size lie two a rank.
  job = make_job("dlrm", "v100-ib100", 12, 12288, 0);
  for (Operator& op : job->workload.operators)
    if (op.kind == OperatorKind::embedding) op.parameters.front().shape[0] = 1'300'000;
  const auto [none, all] = uneven(std::const_pointer_cast<Job>(with_splits(job, pins)));
  CHECK(none == 0);
  CHECK(all == 26);
}

TEST_CASE("spread tables take less memory and less time than data parallelism's copies") {
  const auto job = make_job("dlrm", "dgx-a100", 8, 16384, 0);
  Pins pins;
  pins.pp = 1;
  pins.zero = 0;
  pins.tp = 1;
  const Evaluation copies = search(job, pins, {}).plans.front();
  pins.tp = 8;
  const Evaluation spread = search(job, pins, {}).plans.front();
  INFO("copies " << copies.step_time_s() << " s, spread " << spread.step_time_s() << " s");
  CHECK(spread.step_time_s() < copies.step_time_s());
  CHECK(spread.memory.total < copies.memory.total / 3);
}

// DLRM on eight devices with its larger tables split that way.
std::shared_ptr<const Job> tables_of(TensorSplit way, bool sparse) {
  auto job = make_job("dlrm", "dgx-a100", 8, 16384, 0);
  for (Operator& op : job->workload.operators) {
    if (op.kind != OperatorKind::embedding) continue;
    if (op.parameter_count() >= 1'000'000) set_split(&op, way);
    if (sparse) op.sparse.emplace();
  }
  REQUIRE(complete_splits(&job->workload.operators) == -1);
  return job;
}

TEST_CASE("bounds hold and estimates are near for split graphs") {
  const std::vector<std::shared_ptr<const Job>> jobs = {
      with_splits(on_network("vgg16", 1.25e9, 256), {}),
      with_splits(make_job("dlrm", "dgx-a100", 8, 16384, 0), {}),
      [] {
        Pins pins;
        pins.tp = 4;
        return with_splits(make_job("resnet50", "pcie-4090", 4, 64, 0), pins);
      }(),
      tables_of(TensorSplit::table, false),
      tables_of(TensorSplit::row, true),
      tables_of(TensorSplit::column, true)};
  for (const auto& job : jobs) {
    std::vector<Plan> plans;
    Pins whatever;
    whatever.any_runtime = true;
    for (const Choices& choices : enumerate(job, whatever))
      if (choices.tp > 1) plans.push_back({job, choices});
    REQUIRE(plans.size() > 50);
    std::vector<Plan> some;
    for (std::size_t i = 0; i < 50; ++i) some.push_back(plans[(i * 7919 + 13) % plans.size()]);
    sim::SimulationOptions options;
    options.keep_timeline = false;
    const auto simulations = sim::simulate_all(some, options, 2);
    std::vector<double> errors;
    for (std::size_t i = 0; i < some.size(); ++i) {
      const StepTimes times = Estimator(job).times(some[i].choices);
      INFO(job->workload.name << " on " << job->cluster.name << ": " << describe(some[i])
                              << (some[i].choices.overlap_grad_reduce ? "" : ", no overlap")
                              << ", buckets of " << some[i].choices.bucket_bytes << "; bound "
                              << times.lower_bound_s << ", estimate " << times.estimate_s << ", simulated "
                              << simulations[i].step_time_s);
      CHECK(times.lower_bound_s <= simulations[i].step_time_s * (1 + 1e-9));
      errors.push_back(std::abs(times.estimate_s / simulations[i].step_time_s - 1));
    }
    std::sort(errors.begin(), errors.end());
    INFO(job->workload.name << ": off by " << errors[errors.size() / 2] << " (median), " << errors.back()
                            << " at worst");
    CHECK(errors[errors.size() / 2] < 0.2);  // messages that meet at a port are not in the closed form
  }
}

TEST_CASE("folded and unfolded simulations of split graphs agree") {
  const auto job = with_splits(on_network("vgg16", 1.25e9, 256), {});
  for (const int tp : {2, 4, 8}) {
    Choices choices;
    choices.tp = tp;
    choices.dp = 8 / tp;
    choices.micro_batch = 16 * tp;
    choices.sequence_parallel = true;
    choices.zero = tp == 8 ? 0 : 1;
    sim::SimulationOptions options;
    options.keep_timeline = false;
    const double folded = sim::simulate(Plan{job, choices}, options).step_time_s;
    options.fold = false;
    CHECK(sim::simulate(Plan{job, choices}, options).step_time_s == Approx(folded).epsilon(0.01));
  }
}

}  // namespace
}  // namespace orrery::planner
