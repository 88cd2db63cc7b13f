#include "exec/probe.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "base/statistics.h"
#include "exec/clock.h"
#include "exec/collectives.h"
#include "program/lowering.h"
#include "topologies/catalog.h"
#include "topologies/discover.h"

namespace orrery::exec {
namespace {

constexpr int kSteps = 3;  // the first warms up
constexpr int kPaceRounds = 3;
constexpr std::chrono::microseconds kNap{200};

// Seconds of some operators at a time of two steps of the reference, in the order in which they ran.
std::vector<float> observe_stretches() {
  constexpr int kOperators = 5;
  std::vector<float> stretches;
  int count = 0;
  run_observed(plan_of(kReferenceProbe), [&](int, ComputeKind, int, double seconds) {
    if (count++ % kOperators == 0) stretches.push_back(0);
    stretches.back() += static_cast<float>(seconds);
  });
  return stretches;
}

}  // namespace

Plan plan_of(const Probe& probe) {
  Transformer t;
  t.layers = probe.layers;
  t.hidden = probe.hidden;
  t.heads = probe.heads;
  t.kv_heads = probe.llama ? probe.heads / 2 : probe.heads;
  t.head_dim = probe.hidden / probe.heads;
  t.ffn_hidden = probe.llama ? 8 * probe.hidden / 3 / 16 * 16 : 4 * probe.hidden;
  t.vocab = probe.vocab;
  t.max_positions = probe.seq_len;
  t.family = probe.llama ? "llama" : "gpt2";
  t.gated_ffn = probe.llama;
  t.activation = probe.llama ? Activation::silu : Activation::gelu;
  t.norm = probe.llama ? NormKind::rms_norm : NormKind::layer_norm;
  t.learned_positions = t.tied_embeddings = t.qkv_bias = t.linear_bias = !probe.llama;
  auto job = std::make_shared<Job>();
  job->workload.name = "probe";
  job->workload.transformer = t;
  job->workload.operators = transformer_operators(t);
  job->workload.layers = t.layers;
  job->workload.default_seq_len = probe.seq_len;
  job->cluster = with_devices(discover_uncalibrated_localhost(), 1);
  job->runtime = catalog_runtime("orrery");
  job->training.global_batch = 2 * probe.micro_batch;
  job->training.seq_len = probe.seq_len;
  job->training.precision = DType::fp32;
  job->training.optimizer = Optimizer::sgd;
  Plan plan{job, Choices{}};
  plan.choices.micro_batch = probe.micro_batch;
  return plan;
}

void run_observed(const Plan& plan, Interpreter::OperatorObserver observer) {
  const Program program = lower(plan, 0);
  const auto device = make_cpu_device();
  const auto self = make_self_communicator();
  const TextData data(kDefaultText, plan.job->training.seq_len, 1);
  Interpreter interpreter(plan, program, *device, *self, data);
  interpreter.run_step(0);
  interpreter.observe_operators(std::move(observer));
  for (int step = 1; step < kSteps; ++step) interpreter.run_step(step);
}

BusySeconds busy_seconds(Communicator& world, int busy) {
  sleeping_barrier(world, kNap);
  std::vector<float> slowest;
  if (world.rank() < busy) slowest = observe_stretches();
  sleeping_barrier(world, kNap);
  float count = static_cast<float>(slowest.size());
  world.all_reduce(&count, &count, 1, DType::fp32, Reduction::max)->wait();
  slowest.resize(static_cast<std::size_t>(count));
  std::vector<float> total = slowest;
  world.all_reduce(slowest.data(), slowest.data(), slowest.size(), DType::fp32, Reduction::max)->wait();
  world.all_reduce(total.data(), total.data(), total.size(), DType::fp32, Reduction::sum)->wait();
  BusySeconds seconds;
  for (const float s : slowest) seconds.slowest += static_cast<double>(s);
  for (const float s : total) seconds.mean += static_cast<double>(s) / busy;
  return seconds;
}

double machine_pace(Communicator& world, const DeviceProfile& device) {
  if (device.reference_s == 0) return 0;
  const std::vector<double>& keep = device.concurrency_scale;
  const int cores = std::max(1, static_cast<int>(keep.size()));
  const int busy = std::min(world.size(), cores);
  const double kept = keep.empty() ? 1 : keep[static_cast<std::size_t>(busy) - 1];
  std::vector<double> rounds(kPaceRounds);
  for (double& round : rounds) round = busy_seconds(world, busy).slowest;
  return device.reference_s / kept / upper_median(std::move(rounds));
}

}  // namespace orrery::exec
