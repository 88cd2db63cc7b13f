// Strategies on the catalog's clusters: what a comparison says is what the simulator says of the plans.
#include "compare/compare.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <catch2/catch.hpp>
#include <numeric>

#include "base/error.h"
#include "compare/library.h"
#include "compare/negotiation.h"
#include "compare/plans.h"
#include "planner/closed_form/figures.h"
#include "sim/simulator.h"
#include "tests/support/jobs.h"

namespace orrery::comparison {
namespace {

// Of this process and of those that it has waited for.
double processor_s() {
  double seconds = 0;
  for (const auto who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage usage{};
    getrusage(who, &usage);
    for (const timeval& part : {usage.ru_utime, usage.ru_stime})
      seconds += static_cast<double>(part.tv_sec) + 1e-6 * static_cast<double>(part.tv_usec);
  }
  return seconds;
}

Question asked(const std::string& cluster, int devices, std::int64_t each, const std::string& strategies,
               const std::vector<std::string>& troubles = {}) {
  auto job = test::make_job("resnet50", cluster, devices, each * devices, 0, "pytorch-ddp");
  job->training.precision = DType::fp16;
  job->training.optimizer = Optimizer::momentum;
  Question question;
  question.base.job = job;
  question.strategies = strategies.empty() ? default_strategies() : parse_strategies(strategies);
  for (const std::string& trouble : troubles)
    question.troubles.push_back(parse_trouble(trouble, job->cluster));
  return question;
}

TEST_CASE("a strategy's step is its plan's, and the parts of every rank's step add up to it") {
  const Comparison comparison = compare(asked("v100-ib100", 16, 64, "ddp,fsdp,ps-sync,megatron"));
  CHECK(comparison.sizes == std::vector<int>{1, 2, 4, 8, 16});
  for (const Row& row : comparison.rows) {
    const Way& way = row.whole();
    CAPTURE(row.strategy.name);
    REQUIRE(way.possible());
    CHECK(way.step_s == Approx(sim::simulate(*way.plan).step_time_s));
    CHECK(way.samples_per_s == Approx(1024 / way.step_s));
    REQUIRE(way.ranks.size() == 16);
    for (const RankTimes& rank : way.ranks)
      CHECK(rank.compute_s + rank.exposed_s + rank.waiting_s + rank.other_s ==
            Approx(way.step_s).epsilon(1e-6));
    CHECK(way.efficiency > 0.5);
    CHECK(way.efficiency <= 1);
    CHECK(row.ways.front().efficiency == Approx(1));
  }
  // A ring sends 2 (n - 1) / n of the gradients, in fp32.
  const Way& ddp = comparison.rows[0].whole();
  CHECK(ddp.wire_bytes == Approx(2.0 * 15 / 16 * 4 * ddp.plan->job->workload.parameters()).epsilon(1e-3));
  // Shards of the parameters are gathered twice, and gradients scattered once, less for the last layer.
  CHECK(comparison.rows[1].whole().memory.total < ddp.memory.total);
}

TEST_CASE("a cycle costs half of itself, and a slow one more than it joins") {
  const Comparison comparison = compare(asked("v100-ib100", 16, 64, "horovod:cycle=1ms,horovod:cycle=20ms"));
  const double gained = comparison.rows[1].whole().step_s - comparison.rows[0].whole().step_s;
  CHECK(gained > 0.004);
  CHECK(gained < 0.5 * 0.019 + 0.02);
  // Half of it, and what the workers say to each other.
  const Job& job = *comparison.rows[0].whole().plan->job;
  CHECK(job.runtime.step_overhead_s ==
        Approx(0.0005 + negotiation_s(talk_of(job.cluster), true)).margin(1e-12));
}

TEST_CASE("what Horovod adds to a step is what its settings take") {
  const Comparison comparison =
      compare(asked("v100-ib100", 16, 64, "horovod,horovod:cache=off,horovod:predivide=4"));
  const auto overhead_s = [&](std::size_t row) {
    return comparison.rows[row].whole().plan->job->runtime.step_overhead_s;
  };
  const Plan& plan = *comparison.rows[0].whole().plan;
  Talk talk = talk_of(plan.job->cluster);
  CHECK(talk.workers == 16);
  CHECK(talk.bytes_per_s == Approx(12.5e9));
  CHECK(overhead_s(1) > overhead_s(0));  // requests are longer than bits
  // Divided before the sum: one more pass over the last buffer, read and written.
  const DeviceProfile& device = plan.job->cluster.profile_of(0);
  CHECK(overhead_s(2) - overhead_s(0) ==
        Approx(2 * plan.job->runtime.bucket_bytes /
               (device.memory_bandwidth_bytes_per_s * device.memory_efficiency)));
}

TEST_CASE("tuned settings are the best of those that are tried, by the closed form") {
  const Comparison comparison =
      compare(asked("a100-eth100", 16, 64, "horovod,horovod-hierarchical,horovod-autotune"));
  const auto estimate_s = [&](std::size_t row) {
    return planner::estimate_step_seconds(*comparison.rows[row].whole().plan);
  };
  CHECK(estimate_s(2) <= std::min(estimate_s(0), estimate_s(1)) * (1 + 1e-12));
  const Plan& grouped = *comparison.rows[1].whole().plan;
  CHECK(grouped.choices.zero == 0);
  CHECK(grouped.choices.shard_group == 8);
  // Simulated, as any plan is.
  CHECK(comparison.rows[1].whole().step_s == Approx(sim::simulate(grouped).step_time_s));
}

TEST_CASE("autotuning settles on the best that it tries, and takes 16,950 steps for it") {
  const Comparison comparison =
      compare(asked("a100-eth100", 16, 64,
                    "horovod-autotune,horovod:bucket=4M:cycle=5ms,horovod:bucket=32M:cycle=50ms,"
                    "horovod:bucket=16M:cycle=25ms,horovod:bucket=8M:cycle=10ms,"
                    "horovod-hierarchical:bucket=4M:cycle=5ms,horovod-hierarchical:bucket=32M:cycle=50ms,"
                    "horovod-hierarchical:bucket=16M:cycle=25ms,horovod-hierarchical:bucket=8M:cycle=10ms"));
  std::vector<double> steps_s;
  for (const Row& row : comparison.rows) steps_s.push_back(planner::estimate_step_seconds(*row.whole().plan));
  REQUIRE(comparison.rows.front().whole().tuning);
  const Tuning& tuning = *comparison.rows.front().whole().tuning;
  // Scores of 50 steps: three to warm up, then 21 for each setting of four switches.
  CHECK(tuning.steps == 50 * (3 + 16 * 21));
  // Three scores with the first setting, and of each round four that are known; half of the rounds in groups.
  double extra_s = 50 * 3 * (steps_s[1] - steps_s[0]);
  for (std::size_t i = 1; i < steps_s.size(); ++i) extra_s += 50 * 8 * (steps_s[i] - steps_s[0]);
  CHECK(tuning.extra_s == Approx(extra_s));
  CHECK(tuning.extra_s > 0);
  // What it settles on, said by hand, is the same.
  std::string said = tuning.group > 0 ? "horovod-hierarchical" : "horovod";
  said += fmt::format(":bucket={:.0f}M:cycle={:g}ms", tuning.bucket_bytes / (1 << 20), 1e3 * tuning.cycle_s);
  const Comparison by_hand = compare(asked("a100-eth100", 16, 64, said));
  CHECK(by_hand.rows.front().whole().step_s == Approx(comparison.rows.front().whole().step_s));
  // One device has nothing to tune.
  CHECK_FALSE(comparison.rows.front().ways.front().tuning);
}

TEST_CASE("sharded strategies send what they gather and scatter, and hold their shards") {
  const Comparison comparison = compare(asked(
      "dgx-v100-32g", 16, 64, "ddp,deepspeed-zero1,deepspeed-zero2,deepspeed-zero3,fsdp,hsdp,megatron"));
  const auto parameters = static_cast<double>(comparison.rows[0].whole().plan->job->workload.parameters());
  const auto sent = [&](std::size_t row) { return comparison.rows[row].whole().wire_bytes / parameters; };
  const auto held = [&](std::size_t row) { return comparison.rows[row].whole().memory; };
  // Of each parameter: gradients of 4 bytes all-reduced; or scattered, and weights of 2 gathered.
  CHECK(sent(0) == Approx(15.0 / 16 * (4 + 4)).epsilon(1e-3));
  CHECK(sent(1) == Approx(15.0 / 16 * (4 + 2)).epsilon(1e-3));
  CHECK(sent(6) == Approx(15.0 / 16 * (4 + 2)).epsilon(1e-3));
  CHECK(sent(2) == Approx(15.0 / 16 * (4 + 2)).epsilon(1e-3));
  CHECK(sent(3) == Approx(15.0 / 16 * (4 + 2 + 2)).epsilon(0.1));  // what is gathered still need not be again
  CHECK(sent(4) == Approx(sent(3)).epsilon(1e-6));
  // In groups of eight: shards inside, their gradients' eighths all-reduced over two nodes.
  CHECK(sent(5) == Approx(7.0 / 8 * (4 + 2 + 2) + 2.0 / 2 * 4 / 8).epsilon(0.1));
  // A copy of the weights and the momentum in fp32, on one of sixteen, or of eight.
  CHECK(held(1).optimizer == Approx(held(0).optimizer / 16).epsilon(0.01));
  CHECK(held(4).optimizer == Approx(held(0).optimizer / 16).epsilon(0.01));
  CHECK(held(5).optimizer == Approx(held(0).optimizer / 8).epsilon(0.01));
}

TEST_CASE("a link at half its rate doubles an all-reduce that nothing hides") {
  const Comparison comparison =
      compare(asked("v100-ib100", 8, 64, "multi-worker-mirrored", {"slow-link=2:0.5"}));
  const Row& row = comparison.rows.front();
  const double healthy_s = row.whole().mean_of(&RankTimes::exposed_s);
  REQUIRE(row.troubled);
  CHECK(row.troubled->step_s - row.whole().step_s == Approx(healthy_s).epsilon(0.1));
}

TEST_CASE("gradients in fp16 are half as many bytes as in fp32") {
  const Comparison comparison = compare(asked("v100-ib100", 16, 64, "horovod,horovod-fp16"));
  const Way& whole = comparison.rows[0].whole();
  CHECK(whole.wire_bytes == Approx(2.0 * 15 / 16 * 4 * whole.plan->job->workload.parameters()).epsilon(1e-3));
  CHECK(comparison.rows[1].whole().wire_bytes == Approx(whole.wire_bytes / 2));
}

TEST_CASE("mirrored strategies send everything behind the backward pass") {
  const auto added_s = [](const Way& way) {
    const Cluster& cluster = way.plan->job->cluster;
    std::vector<int> all(static_cast<std::size_t>(way.devices));
    std::iota(all.begin(), all.end(), 0);
    return all_reduce_s(Library::own, 4.0 * static_cast<double>(way.plan->job->workload.parameters()),
                        group_shape(Network(cluster), all), cluster, {});
  };
  const Comparison node = compare(asked("dgx-v100-32g", 8, 64, "mirrored,ddp"));
  const Way& mirrored = node.rows[0].whole();
  // One device's step and one all-reduce of 25.6 million gradients in fp32.
  CHECK(mirrored.step_s - node.rows[0].ways[0].step_s == Approx(added_s(mirrored)).epsilon(0.1));
  CHECK(mirrored.mean_of(&RankTimes::exposed_s) == Approx(added_s(mirrored)).epsilon(0.1));
  const Comparison nodes = compare(asked("v100-ib100", 16, 64, "multi-worker-mirrored,ddp"));
  const Way& several = nodes.rows[0].whole();
  CHECK(several.step_s - nodes.rows[0].ways[0].step_s == Approx(added_s(several)).epsilon(0.1));
  CHECK(several.step_s > nodes.rows[1].whole().step_s);
}

TEST_CASE("one process sends its parameters to all and takes their gradients through device 0") {
  const Comparison comparison = compare(asked("dgx-v100-32g", 8, 64, "data-parallel"));
  const Way& way = comparison.rows[0].whole();
  // In the mean of the eight devices 7/8 of: its parameters in fp16, broadcast; their gradients in fp32,
  // reduced; its 64 pictures in fp32, from device 0.
  const auto parameters = static_cast<double>(way.plan->job->workload.parameters());
  CHECK(way.wire_bytes == Approx(7.0 / 8 * ((2 + 4) * parameters + 64 * 3 * 224 * 224 * 4.0)).epsilon(1e-3));
}

TEST_CASE("a table has all figures for every number of devices, and every rank") {
  const Comparison comparison = compare(asked("v100-ib100", 4, 64, "ddp", {"slow-device=1:0.5"}));
  const Row& row = comparison.rows[0];
  REQUIRE(row.ways.size() == 3);
  for (const Way& way : row.ways) {
    CHECK(way.ranks.size() == static_cast<std::size_t>(way.devices));
    CHECK(way.samples_per_s == Approx(way.efficiency * way.devices * row.ways[0].samples_per_s));
    CHECK(way.wire_bytes ==
          Approx(2.0 * (way.devices - 1) / way.devices * 4 * way.plan->job->workload.parameters())
              .epsilon(1e-3));
  }
  // The others wait for half of the slow one's time.
  REQUIRE(row.troubled);
  CHECK(row.troubled->ranks[0].waiting_s == Approx(row.troubled->compute_s[0]).epsilon(0.1));
  CHECK(row.troubled->ranks[1].waiting_s < 0.05 * row.troubled->step_s);
}

TEST_CASE("requests to servers cost what each of them costs, and servers in shared memory nothing") {
  const Comparison comparison =
      compare(asked("v100-ib100", 4, 64, "ps-sync:servers=2:bucket=0,ps-sync:servers=2:bucket=0:call=1ms"));
  const Way& shared = comparison.rows[0].whole();
  const Way& remote = comparison.rows[1].whole();
  // One bucket: a push and a pull to two servers, less half of the workers' own one: 2 * 1.5 requests.
  CHECK(calls_of(*remote.plan) == Approx(3));
  CHECK(remote.step_s - shared.step_s == Approx(3e-3).epsilon(1e-3));
}

TEST_CASE("between regions sums inside them first, and local steps, save the long way") {
  const Comparison comparison = compare(asked(
      "two-regions-v100", 8, 64, "horovod-ring,horovod-hierarchical,ddp,local-sgd:local_steps=10,diloco"));
  const Way& ring = comparison.rows[0].whole();
  const Way& grouped = comparison.rows[1].whole();
  CHECK(grouped.plan->choices.shard_group == 4);
  CHECK(grouped.step_s < ring.step_s);
  // 25.6 million parameters in fp32. The ring carries 2 * 7/8 of them over 1.25 GB/s; four pairs carry a
  // quarter each, all together once.
  const Cluster& cluster = grouped.plan->job->cluster;
  const double bytes = 4.0 * static_cast<double>(grouped.plan->job->workload.parameters());
  const double rate = 1.25e9 * cluster.communication.network_efficiency;
  CHECK(ring.exchange_s() > 0.9 * 1.75 * bytes / rate - ring.compute_s[0]);
  CHECK(grouped.step_s > bytes / rate);
  CHECK(grouped.step_s < bytes / rate + 1.5 * grouped.compute_s[0] + 0.3);
  // Averages: the same, once in ten steps; in five hundred nobody sees it.
  const Way& local = comparison.rows[3].whole();
  CHECK(local.average_s > bytes / rate);
  CHECK(local.average_s < bytes / rate + 0.04);
  CHECK(local.step_s == Approx(local.compute_s[0] + local.average_s / 10).epsilon(0.05));
  CHECK(comparison.rows[4].whole().efficiency > 0.95);
}

TEST_CASE("trees and rings are as long as the library takes for them") {
  const Comparison comparison = compare(asked("v100-ib100", 16, 64, "horovod,horovod-ring,horovod-tree"));
  const double chosen = comparison.rows[0].whole().step_s;
  // What the library chooses is one of them, and neither is better.
  CHECK(std::min(comparison.rows[1].whole().step_s, comparison.rows[2].whole().step_s) ==
        Approx(chosen).epsilon(1e-3));
  CHECK(std::max(comparison.rows[1].whole().step_s, comparison.rows[2].whole().step_s) > chosen);
}

TEST_CASE("local steps average once in so many") {
  const Comparison comparison =
      compare(asked("v100-ib100", 16, 64, "local-sgd:local_steps=1,local-sgd:local_steps=10,diloco"));
  const Way& every = comparison.rows[0].whole();
  const Way& tenth = comparison.rows[1].whole();
  CHECK(every.step_s - every.compute_s[0] == Approx(every.average_s));
  CHECK(tenth.step_s - tenth.compute_s[0] == Approx(every.average_s / 10));
  CHECK(tenth.wire_bytes == Approx(every.wire_bytes / 10));
  const auto parameters = static_cast<double>(tenth.plan->job->workload.parameters());
  CHECK(comparison.rows[2].whole().memory.total - tenth.memory.total == Approx(8 * parameters));
}

TEST_CASE(
    "DiLoCo sends what its workers moved once in five hundred steps, and keeps two numbers more of each") {
  const Comparison comparison = compare(asked("v100-ib100", 16, 64, "ddp,diloco"));
  const Way& ddp = comparison.rows[0].whole();
  const Way& diloco = comparison.rows[1].whole();
  // 25.6 million parameters in fp32 around a ring of 16: 2 * 15/16 * 102 MB, of which a step has 1/500.
  const auto parameters = static_cast<double>(diloco.plan->job->workload.parameters());
  CHECK(diloco.wire_bytes == Approx(2 * 15 / 16.0 * 4 * parameters / 500).epsilon(1e-3));
  CHECK(diloco.wire_bytes == Approx(ddp.wire_bytes / 500).epsilon(1e-3));
  CHECK(diloco.step_s == Approx(diloco.compute_s[0] + diloco.average_s / 500));
}

TEST_CASE("who goes on without a dead worker queues at the server with one less") {
  // Four pictures each: the server's port is busy for most of a step, and those who are left have more of it.
  Question question = asked("v100-ib100", 3, 4, "ps-async:servers=1", {"dies=worker:2@1000"});
  question.options.replace_s = 1e6;
  const Comparison comparison = compare(question);
  const Row& row = comparison.rows[0];
  const double three = row.whole().samples_per_s;
  const double two = row.ways[1].samples_per_s;
  REQUIRE(row.ways[1].devices == 2);
  CHECK(two > 0.75 * three);
  CHECK(row.ordeal->samples_per_s() == Approx((1000 * three + 2600 * two) / 3600).epsilon(0.02));
}

TEST_CASE("what one process does stays on one node") {
  const Comparison comparison = compare(asked("dgx-v100-32g", 16, 32, "data-parallel,mirrored,ddp"));
  CHECK_FALSE(comparison.rows[0].whole().possible());
  CHECK_FALSE(comparison.rows[1].whole().possible());
  CHECK(comparison.rows[0].ways[3].possible());  // 8 devices
  CHECK(comparison.rows[0].ways[3].step_s > comparison.rows[2].ways[3].step_s);
  REQUIRE(comparison.best);
  CHECK(comparison.rows[*comparison.best].strategy.name == "ddp");
}

TEST_CASE("with one slow device the run of many steps agrees with the simulated one") {
  const Comparison comparison =
      compare(asked("v100-ib100", 8, 64, "ddp,fsdp,ps-sync,ps-async,local-sgd", {"slow-device=3:0.2"}));
  for (const Row& row : comparison.rows) {
    CAPTURE(row.strategy.name);
    REQUIRE(row.ordeal);
    REQUIRE(row.troubled);
    CHECK(row.ordeal->samples_per_s() == Approx(row.troubled->samples_per_s).epsilon(0.1));
  }
  // Who waits for all is at most as fast as the slow one; who waits for nobody loses its part alone.
  CHECK(comparison.rows[0].ordeal->samples_per_s() <= 8.2 * 0.2 * comparison.rows[0].ways[0].samples_per_s);
  const Row& async = comparison.rows[3];
  CHECK(async.ordeal->samples_per_s() > 0.85 * async.whole().samples_per_s);
  // Everybody but the slow one waits.
  const Way& ddp = *comparison.rows[0].troubled;
  CHECK(ddp.ranks[3].waiting_s < 0.1 * ddp.ranks[0].waiting_s);
  CHECK(ddp.mean_of(&RankTimes::waiting_s) > 0.5 * ddp.step_s);
}

TEST_CASE("a slow link and a neighbour on it cost those who communicate") {
  const Comparison comparison = compare(asked("v100-ib100", 8, 64, "ddp,local-sgd", {"slow-link=2:0.1"}));
  const double ddp = comparison.rows[0].ordeal->samples_per_s() / comparison.rows[0].whole().samples_per_s;
  const double local = comparison.rows[1].ordeal->samples_per_s() / comparison.rows[1].whole().samples_per_s;
  CHECK(ddp < 0.9);
  CHECK(local > ddp);
  // A neighbour that takes nine tenths for good is the same as a link with a tenth left.
  const Comparison neighbour = compare(asked("v100-ib100", 8, 64, "ddp,local-sgd", {"neighbour=2:0.9"}));
  CHECK(neighbour.rows[0].ordeal->samples_per_s() == Approx(comparison.rows[0].ordeal->samples_per_s()));
  // By turns it is in between.
  const Comparison turns = compare(asked("v100-ib100", 8, 64, "ddp", {"neighbour=2:0.9:30:30"}));
  CHECK(turns.rows[0].ordeal->samples_per_s() > comparison.rows[0].ordeal->samples_per_s());
  CHECK(turns.rows[0].ordeal->samples_per_s() < comparison.rows[0].whole().samples_per_s);
}

TEST_CASE("workers that leave and join need not be whole nodes") {
  // Of sixteen four leave after 1,000 of 3,600 s, or join: nobody waits for anybody.
  for (const auto& [trouble, workers] : {std::pair{"leaves=4@1000", 12}, {"joins=4@1000", 20}}) {
    const Comparison comparison = compare(asked("dgx-v100-32g", 16, 64, "ps-async", {trouble}));
    const Row& row = comparison.rows.front();
    REQUIRE(row.ordeal);
    CHECK(row.ordeal->workers == workers);
    CHECK(row.ordeal->samples_per_s() / row.whole().samples_per_s ==
          Approx((1000 + 2600 * workers / 16.0) / 3600).epsilon(0.02));
  }
}

TEST_CASE("several troubles are met together and one by one") {
  const Comparison both = compare(
      asked("v100-ib100", 8, 64, "ddp,ps-async,local-sgd", {"slow-device=3:0.5", "dies=worker:1@1000"}));
  const Comparison slow =
      compare(asked("v100-ib100", 8, 64, "ddp,ps-async,local-sgd", {"slow-device=3:0.5"}));
  const Comparison dead =
      compare(asked("v100-ib100", 8, 64, "ddp,ps-async,local-sgd", {"dies=worker:1@1000"}));
  for (std::size_t i = 0; i < both.rows.size(); ++i) {
    const Row& row = both.rows[i];
    CAPTURE(row.strategy.name);
    REQUIRE(row.alone.size() == 2);
    CHECK(row.alone[0].samples_per_s() == Approx(slow.rows[i].ordeal->samples_per_s()));
    CHECK(row.alone[1].samples_per_s() == Approx(dead.rows[i].ordeal->samples_per_s()));
    CHECK(slow.rows[i].alone.empty());
    CHECK(row.ordeal->samples_per_s() < row.alone[0].samples_per_s());
    CHECK(row.ordeal->samples_per_s() < row.alone[1].samples_per_s());
  }
}

TEST_CASE("ten strategies on 64 devices with trouble take less than five seconds") {
  const double before_s = processor_s();
  const Comparison comparison =
      compare(asked("dgx-v100-32g", 64, 64, "",
                    {"lognormal=0.2", "slow-device=3:0.5", "dies=worker:9@1000", "neighbour=1:0.5"}));
  CHECK(comparison.rows.size() == 10);
  CHECK(processor_s() - before_s < 10);  // of both processors, whatever else they do
}

TEST_CASE("where no strategy fits in memory the answer is no, with the nearest") {
  Question question = asked("v100-ib100", 2, 4, "ddp,fsdp");
  question.base.job = test::make_job("gpt3-175b", "dgx-a100", 16, 16, 2048, "typical");
  const Comparison comparison = compare(question);
  CHECK_FALSE(comparison.any_fits());
  CHECK_FALSE(comparison.rows[0].interval);  // of a step that cannot be
  CHECK_THROWS_AS(check_answered(comparison), NoAnswer);
  CHECK_THROWS_WITH(check_answered(comparison), Catch::Contains("the nearest, fsdp, needs"));
}

TEST_CASE("what no strategy can do is refused in one sentence") {
  Question question = asked("dgx-a100", 4, 3, "all");
  question.base.micro_batch = 2;
  CHECK_THROWS_WITH(compare(question),
                    "`micro_batch` 2: each of 4 devices has 3 samples of a step (expected a divisor of 3)");
  CHECK_THROWS_WITH(compare(asked("dgx-v100-32g", 16, 32, "data-parallel,mirrored")),
                    Catch::Contains("none of 2 strategies runs: data-parallel"));
  question = asked("v100-ib100", 2, 4, "ddp", {"dies=worker:1@100"});
  question.options.horizon_s = 50;
  CHECK_THROWS_WITH(compare(question), Catch::Contains("comes after the end"));
}

TEST_CASE("on one device two strategies are as fast, not 0.0% slower") {
  const Comparison comparison = compare(asked("dgx-a100", 1, 8, "ddp,fsdp"));
  CHECK_THAT(comparison.verdict, Catch::Contains("on 1 device."));
  CHECK_THAT(comparison.verdict, Catch::Contains("has as many samples/s."));
}

TEST_CASE("trouble that makes no sense is refused with the form that does") {
  const Cluster cluster = with_devices(load_cluster("v100-ib100"), 4);
  for (const char* text :
       {"slow-device=4:0.2", "slow-device=0:0", "slow-device=0:1.5", "slow-link=4:0.5", "neighbour=0:0.5:3",
        "lognormal=9", "lognormal=x", "on-off=0:0.5:0:3", "dies=worker@3", "dies=chief:1@3", "dies=worker:1",
        "dies=king@3", "leaves=4@1", "joins=0@1", "rain=3", ""}) {
    CAPTURE(text);
    CHECK_THROWS_AS(parse_trouble(text, cluster), UserError);
  }
  CHECK_THROWS_AS(parse_trouble("slow-link=0:0.5", with_devices(load_cluster("dgx-v100-32g"), 8)), UserError);
}

}  // namespace
}  // namespace orrery::comparison
