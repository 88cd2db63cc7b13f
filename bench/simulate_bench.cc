// How fast a step is simulated. `wall` is the call; children included, for every simulation forks.
//   bench_simulate --benchmark_filter=folded
#include <benchmark/benchmark.h>
#include <sys/resource.h>

#include <memory>

#include "sim/scenario/folding.h"
#include "sim/simulator.h"
#include "topologies/readers/catalog.h"
#include "workloads/readers/catalog.h"

namespace {

using namespace orrery;

std::shared_ptr<Job> job_of(const char* workload, const char* cluster, int devices, std::int64_t batch,
                            int seq_len) {
  auto job = std::make_shared<Job>();
  job->workload = load_workload(workload);
  job->cluster = with_devices(load_cluster(cluster), devices);
  job->runtime = catalog_runtime("megatron-core");
  job->training.global_batch = batch;
  job->training.seq_len = seq_len;
  return job;
}

Choices choose(int tp, int pp, int dp) {
  Choices choices;
  choices.tp = tp;
  choices.pp = pp;
  choices.dp = dp;
  choices.zero = 1;
  choices.sequence_parallel = tp > 1;
  return choices;
}

void run(benchmark::State& state, const Plan& plan, bool fold, bool keep_timeline = true) {
  check_plan(plan);
  sim::SimulationOptions options;
  options.fold = fold;
  options.keep_timeline = keep_timeline;
  sim::Simulation result;
  for (auto _ : state) result = sim::simulate(plan, options);
  state.counters["ranks"] = result.ranks;
  state.counters["simulated"] = result.simulated_ranks;
  state.counters["events"] = static_cast<double>(result.events);
  state.counters["step_s"] = result.step_time_s;
  std::size_t instructions = 0;
  for (const Program& program : result.programs)
    instructions = std::max(instructions, program.instructions.size());
  state.counters["instructions"] = static_cast<double>(instructions);
  rusage self{};
  rusage children{};
  getrusage(RUSAGE_SELF, &self);
  getrusage(RUSAGE_CHILDREN, &children);
  state.counters["peak_MiB"] = static_cast<double>(std::max(self.ru_maxrss, children.ru_maxrss)) / 1024;
}

void gpt3_175b_on_1024_folded(benchmark::State& state) {
  run(state, {job_of("gpt3-175b", "dgx-a100", 1024, 1536, 2048), choose(8, 8, 16)}, true);
}
void llama3_405b_on_16384_folded(benchmark::State& state) {
  run(state, {job_of("llama3-405b", "dgx-h100", 16384, 2048, 8192), choose(8, 16, 128)}, true);
}
void gpt_7b_on_64_unfolded(benchmark::State& state) {
  run(state, {job_of("gpt3-7b", "dgx-a100", 64, 32, 2048), choose(8, 4, 2)}, false);
}
void gpt_7b_on_1024_unfolded(benchmark::State& state) {
  run(state, {job_of("gpt3-7b", "dgx-a100", 1024, 512, 2048), choose(8, 4, 32)}, false, false);
}
// The cost of growing: data-parallel replicas of one plan.
void gpt3_175b_growing(benchmark::State& state) {
  const int devices = static_cast<int>(state.range(0));
  const int pp = 8;
  const int dp = devices / (8 * pp);
  run(state, {job_of("gpt3-175b", "dgx-a100", devices, 32 * dp, 2048), choose(8, pp, dp)}, true);
}
void ring_all_reduce_1gib(benchmark::State& state) {
  const int devices = static_cast<int>(state.range(0));
  const Cluster cluster = with_devices(load_cluster("dgx-a100"), devices);
  const Algorithm ring = Algorithm::ring;
  sim::CollectiveResult result;
  for (auto _ : state)
    result = sim::simulate_collective(CollectiveKind::all_reduce, 1 << 30, cluster, devices,
                                      sim::Detail::flows, &ring);
  state.counters["time_s"] = result.time_s;
}

BENCHMARK(gpt3_175b_on_1024_folded)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(llama3_405b_on_16384_folded)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(gpt_7b_on_64_unfolded)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(gpt_7b_on_1024_unfolded)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(gpt3_175b_growing)
    ->RangeMultiplier(4)
    ->Range(64, 16384)
    ->Arg(102400)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();
BENCHMARK(ring_all_reduce_1gib)
    ->RangeMultiplier(4)
    ->Range(8, 4096)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
