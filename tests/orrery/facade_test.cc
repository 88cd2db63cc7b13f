#include <array>
#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "exec/launch/available_memory.h"
#include "orrery/json.h"
#include "orrery/validate.h"
#include "tests/support/jobs.h"

using namespace orrery;

namespace {

// The answers of one caller: a search, its best plan simulated with every rank, a collective, a whole run.
std::string answers_of(int caller) {
  constexpr std::array<const char*, 4> kWorkloads = {"gpt2", "bert-base", "resnet50", "gpt2"};
  constexpr std::array<const char*, 4> kClusters = {"dgx-a100", "a100-eth100", "v100-ib100", "pcie-4090"};
  const auto at = static_cast<std::size_t>(caller);
  const bool images = at == 2;
  const auto job = test::make_job(kWorkloads[at], kClusters[at], 4, images ? 64 : 16, images ? 0 : 128);
  planner::SearchOptions options;
  options.top = 3;
  options.jobs = 2;
  planner::SearchResult result = plan(job, {}, options);
  result.search_s = 0;
  Simulated simulated = simulate({result.plans.front().plan, {.fold = false, .steps = 2}});
  simulated.wall_s = 0;
  const sim::Simulation& simulation = *simulated.evaluation.simulation;
  CollectiveRequest request;
  request.bytes = {1e6, 64e6};
  request.cluster = job->cluster;
  std::vector<CollectiveTime> times = collective(request);
  for (CollectiveTime& time : times) time.wall_s = 0;
  GoodputRequest run;
  run.plan = result.plans.front().plan;
  run.length.steps = 1e5;
  run.mtbf_device_hours = 1000;
  run.checkpoint_s = 30;
  run.runs = 20;
  return to_json(*job, result).dump() + to_json(simulated).dump() + to_json(request, times).dump() +
         to_json(goodput(run)).dump() + chrome_trace(simulation.programs, simulation.timeline);
}

}  // namespace

// Everything in one case: after start() the process has a server, and after its threads it never is one
// without threads again.
TEST_CASE("four threads at once get the answers of one, whoever forks the simulations") {
  std::array<std::string, 4> alone, served, beside;
  for (std::size_t i = 0; i < alone.size(); ++i) alone[i] = answers_of(static_cast<int>(i));
  start();
  served[1] = answers_of(1);
  CHECK(served[1] == alone[1]);
  std::array<std::string, 4> errors;
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < beside.size(); ++i)
    threads.emplace_back([&, i] {
      try {
        beside[i] = answers_of(static_cast<int>(i));
      } catch (const std::exception& error) {
        errors[i] = error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < alone.size(); ++i) {
    INFO(i << ": " << errors[i]);
    CHECK(errors[i].empty());
    CHECK(beside[i] == alone[i]);
  }
}

TEST_CASE("a plan whose ranks keep more than this machine has is not started, and what fits is") {
  planner::Pins pins;
  pins.dp = 2;
  pins.zero = 0;
  const Plan two = plan(test::make_job("gpt2", "localhost", 2, 2, 16, "orrery"), pins).plans.front().plan;
  // Weights, gradients and Adam's moments of both ranks; what else they need of 16 tokens is little.
  const double kept = 2.0 * 124'439'808 * (4 + 4 + 8);
  const auto check = [&](double bytes, const Placement& placement, const char* backend) {
    check_memory(two, placement, backend, bytes);
  };
  CHECK_THROWS_AS(check(0.95 * kept, {}, "mpi"), NoAnswer);
  CHECK_THROWS_WITH(check(0.5 * kept, {}, "auto"), Catch::Contains("GiB of memory left"));
  CHECK_NOTHROW(check(1.05 * kept, {}, "auto"));
  CHECK_NOTHROW(check(1, {}, "nccl"));  // the devices' memory
  Placement elsewhere, told, slurm;
  elsewhere.hosts = {"a", "b"};
  told.mpirun_args = {"--hostfile", "hosts"};
  slurm.launcher = Launcher::srun;
  for (const Placement& placement : {elsewhere, told, slurm}) CHECK_NOTHROW(check(1, placement, "mpi"));
  CHECK_NOTHROW(check_memory(two, {}, "mpi", std::nullopt));
  CHECK(available_bytes().value() > 1e6);
}

TEST_CASE("a plan for GPUs counts as processors keep it, and is announced where they train it") {
  if (std::filesystem::exists("/dev/nvidiactl")) return;  // they do not
  planner::Pins pins;
  pins.dp = 2;
  pins.zero = 0;
  const auto one = [&](std::int64_t batch) {
    return plan(test::make_job("gpt2", "dgx-a100", 2, batch, 1024), pins).plans.front().plan;
  };
  const Plan small = one(2), large = one(128);
  // 32 bits of all that is narrower, and the optimizer's own weights.
  const double states = 2.0 * 124'439'808 * (4 + 4 + 8 + 4);
  CHECK_THROWS_AS(check_memory(small, {}, "auto", states), NoAnswer);
  CHECK_NOTHROW(check_memory(small, {}, "auto", 2.5 * states));
  CHECK_THROWS_WITH(check_memory(large, {}, "auto", 2.5 * states),
                    Catch::Contains("activations and buffers"));
  CHECK_THAT(surprise_on_processors(small, {}, "auto"),
             Catch::Contains("is for a100-sxm-80g") && Catch::Contains("without a GPU"));
  CHECK(surprise_on_processors(small, {}, "nccl").empty());
  const Plan hours = plan(test::make_job("llama2-70b", "dgx-a100", 64, 1024, 4096)).plans.front().plan;
  CHECK_THAT(surprise_on_processors(hours, {}, "mpi"), Catch::Contains("a step may take about"));
  const Plan own = plan(test::make_job("gpt2", "localhost", 2, 2, 16, "orrery"), pins).plans.front().plan;
  CHECK(surprise_on_processors(own, {}, "auto").empty());
}

TEST_CASE("a goodput request says what it lacks") {
  GoodputRequest request;
  planner::Pins pins;
  pins.tp = 2;
  pins.pp = 1;
  request.plan = plan(test::make_job("gpt2", "pcie-4090", 2, 8, 128), pins).plans.front().plan;
  CHECK_THROWS_WITH(goodput(request), Catch::Contains("tokens") && Catch::Contains("steps"));
  request.length.steps = 10.5;
  CHECK_THROWS_WITH(goodput(request), Catch::Contains("mtbf_device_hours"));
  request.mtbf_device_hours = 1000;
  CHECK_THROWS_WITH(goodput(request), Catch::Contains("whole number"));
  request.length.steps = -10;
  CHECK_THROWS_WITH(goodput(request), Catch::Contains("expected 1 to"));
  request.length.steps = 10;
  request.runs = 0;
  CHECK_THROWS_WITH(goodput(request), Catch::Contains("`runs` 0"));
  request.runs = 200;
  request.spares = 1;
  CHECK_THROWS_WITH(goodput(request), Catch::Contains("repair_hours"));
}
