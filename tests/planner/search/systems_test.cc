#include "planner/search/systems.h"

#include <catch2/catch.hpp>
#include <random>
#include <set>

#include "planner/search/search.h"
#include "sim/simulator.h"
#include "tests/support/jobs.h"

namespace orrery::planner {
namespace {

using test::make_job;

const System& of(const std::vector<System>& systems, SystemKind kind) {
  return systems[static_cast<std::size_t>(kind)];
}

std::vector<System> compared(const std::shared_ptr<Job>& job, const Pins& pins) {
  return planner::search(job, pins, {}).systems;
}

TEST_CASE("kinds of systems by their plans") {
  Choices choices;
  CHECK(system_kind_of(choices) == SystemKind::all_reduce);
  choices.zero = 3;
  CHECK(system_kind_of(choices) == SystemKind::sharded);
  choices.ep = 2;
  CHECK(system_kind_of(choices) == SystemKind::three_d);
}

TEST_CASE("every kind has a figure or a reason, and the best plan's kind has the best step") {
  const auto job = make_job("gpt2", "dgx-a100", 8, 64, 1024);
  const SearchResult result = planner::search(job, {}, {});
  REQUIRE(result.systems.size() == 4);
  const System& servers = of(result.systems, SystemKind::async_servers);
  CHECK(*servers.step_time_s >= servers.bound_s);  // eight devices are few enough to simulate
  const System& suits = of(result.systems, system_kind_of(result.plans.front().plan.choices));
  CHECK(suits.step_time_s == result.plans.front().step_time_s());
  for (const System& system : result.systems) {
    REQUIRE(system.step_time_s);
    if (system.kind == SystemKind::async_servers) continue;
    CHECK(*system.step_time_s >= *suits.step_time_s);
    CHECK(system_kind_of(*system.choices) == system.kind);
  }
  CHECK_THAT(result.why,
             Catch::Contains("Best family: ") && Catch::Contains("asynchronous parameter servers"));

  // Plans are ranked by expected regret or another objective: the best need not be the fastest as predicted.
  const std::string why = "(faster as predicted)";
  CHECK_THAT(which_suits(result.systems, result.plans.front()), !Catch::Contains(why));
  std::vector<System> others = result.systems;
  for (System& system : others)
    if (system.kind == SystemKind::three_d) system.step_time_s = 0.99 * *suits.step_time_s;
  CHECK_THAT(which_suits(others, result.plans.front()),
             Catch::Contains("3-D parallelism (Megatron-LM) " + why));
}

TEST_CASE("servers that take long to simulate and have no lead are told by their bound") {
  const auto job = make_job("llama3-8b", "dgx-h200", 8, 128, 8192);
  const SearchResult result = planner::search(job, {}, {});
  const System& servers = of(result.systems, SystemKind::async_servers);
  CHECK(servers.bound_s > 0.98 * result.plans.front().step_time_s());
  CHECK(!servers.step_time_s);
  CHECK_THAT(result.why, Catch::Contains("with asynchronous parameter servers on every device"));
}

TEST_CASE("the best of a kind of data parallelism is what a search of it alone finds") {
  const auto job = make_job("resnet50", "v100-ib100", 8, 1024, 0, "pytorch-ddp");
  job->training.precision = DType::fp16;
  const std::vector<System> systems = compared(job, {});
  Pins sharded;
  sharded.zero = 1;
  CHECK(*of(systems, SystemKind::sharded).step_time_s <=
        planner::search(job, sharded, {}).plans.front().step_time_s());
}

TEST_CASE("every kind of system has a name for people of its own") {
  std::set<std::string_view> names;
  for (const SystemKind kind :
       {SystemKind::all_reduce, SystemKind::sharded, SystemKind::three_d, SystemKind::async_servers}) {
    CHECK_FALSE(spoken(kind).empty());
    CHECK(names.insert(spoken(kind)).second);
  }
  CHECK(spoken(SystemKind::async_servers) == "asynchronous parameter servers");  // no frameworks, no brackets
}

TEST_CASE("what does not fit is said with what it lacks: 70 billion parameters on eight devices") {
  const auto job = make_job("llama2-70b", "dgx-a100", 32, 32, 4096);
  const SearchResult result = planner::search(job, {}, {});
  const System& whole = of(result.systems, SystemKind::all_reduce);
  CHECK_FALSE(whole.step_time_s);
  // 69 billion parameters at 18 bytes of states (bf16, fp32 gradients, Adam's fp32 master and moments)
  // are 1,242 GB, less a device's 80 GB; activations and what the allocator wastes come on top.
  CHECK(whole.short_bytes > 69e9 * 18 - 85e9);
  CHECK(whole.short_bytes < 1.1 * 69e9 * 18 - 85e9);
  CHECK_THAT(result.why, Catch::Contains("all-reduce data parallelism (Horovod, DDP) would need"));
}

TEST_CASE("asynchronous servers behind one port a device: gradients and parameters out of each, by hand") {
  const auto job = make_job("gpt2", "v100-ib100", 8, 8, 128);
  const System servers = of(compared(job, {}), SystemKind::async_servers);
  REQUIRE(servers.bound_s > 0);
  const Plan plan{job, *servers.choices};
  const double bytes = 124'439'808.0 * (bytes_of(plan.gradient_type()) + bytes_of(plan.parameter_type()));
  CHECK(servers.bound_by == "traffic");
  CHECK(servers.bound_s == Approx(bytes * 7 / 8 / 12.5e9));
}

TEST_CASE("the bound of asynchronous servers is below what is simulated, of synchronous ones too") {
  Pins flat;
  flat.tp = flat.pp = flat.cp = 1;
  for (const int devices : {2, 4, 8}) {
    const auto job = make_job("gpt2", devices == 8 ? "dgx-a100" : "v100-ib100", devices, 32, 512);
    Estimator estimator(job);
    const System servers = of(systems(job, flat, Candidates{}, estimator), SystemKind::async_servers);
    REQUIRE(servers.bound_s > 0);
    Choices choices = *servers.choices;
    CHECK(choices.servers == devices);
    sim::SimulationOptions options;
    options.keep_timeline = false;
    for (const Sync sync : {Sync::async_parameter_server, Sync::parameter_server}) {
      choices.sync = sync;
      CHECK(servers.bound_s <= sim::simulate(Plan{job, choices}, options).step_time_s);
    }
  }
}

TEST_CASE("the bound of asynchronous servers knows the speeds of single devices") {
  Pins flat;
  flat.tp = flat.pp = flat.cp = 1;
  std::mt19937_64 random(11);
  std::uniform_real_distribution<double> speed(0.1, 1);
  for (int draw = 0; draw < 12; ++draw) {
    const bool one_node = draw % 2 == 0;
    auto job = std::make_shared<Job>(*make_job("resnet50", one_node ? "dgx-a100" : "v100-ib100", 8, 256, 0));
    const double nominal = [&] {
      Estimator estimator(job);
      return of(systems(job, flat, Candidates{}, estimator), SystemKind::async_servers).bound_s;
    }();
    for (int device = 0; device < 8; ++device)
      if (random() % 3 == 0 || device == draw % 8) {
        const int node = one_node ? 0 : device;
        job->cluster.overrides.push_back(
            {node, one_node ? device : 0, 0, OverrideTarget::device, speed(random)});
      }
    Estimator estimator(job);
    const System servers = of(systems(job, flat, Candidates{}, estimator), SystemKind::async_servers);
    REQUIRE(servers.bound_s > 0);
    CHECK(servers.bound_s >= nominal);
    Choices choices = *servers.choices;
    sim::SimulationOptions options;
    options.keep_timeline = false;
    for (const int staleness : {0, 2})
      for (const int servers_of : {1, 8}) {
        choices.staleness = staleness;
        choices.servers = servers_of;
        CHECK(servers.bound_s <= 1.000001 * sim::simulate(Plan{job, choices}, options).step_time_s);
      }
  }
}

TEST_CASE("pins that leave a kind nothing are its reason, and one device has no kinds") {
  Pins pins;
  pins.tp = 2;
  const auto systems = compared(make_job("gpt2", "dgx-a100", 4, 8, 256), pins);
  CHECK(of(systems, SystemKind::sharded).refusal == "pins and runtime leave none");
  CHECK(of(systems, SystemKind::all_reduce).refusal == "pins and runtime leave none");
  CHECK(of(systems, SystemKind::three_d).step_time_s);
  CHECK(compared(make_job("gpt2", "dgx-a100", 1, 8, 256), {}).empty());
  // 664 samples over eight H100 and eight A100: by speed, and not evenly.
  const auto uneven =
      compared(make_job("gpt2-tiny", ORRERY_TEST_DATA "/clusters/h100-a100.textproto", 16, 664, 64), {});
  CHECK(of(uneven, SystemKind::all_reduce).step_time_s);
  CHECK(of(uneven, SystemKind::async_servers).refusal == "the batch cannot be shared evenly");
  CHECK(of(uneven, SystemKind::async_servers).short_bytes == 0);
}

}  // namespace
}  // namespace orrery::planner
