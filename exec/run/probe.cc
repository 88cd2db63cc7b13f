#include "exec/run/probe.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "exec/communicators/clock.h"
#include "exec/communicators/collectives.h"
#include "program/lower/lowering.h"
#include "topologies/readers/catalog.h"
#include "topologies/readers/discover.h"

namespace orrery::exec {
namespace {

constexpr int kObservedSteps = 2;
constexpr int kStretchOperators = 5;
constexpr std::chrono::microseconds kNap{200};

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

// A small model that is trained on this rank alone.
struct Solo {
  explicit Solo(const Plan& of)
      : plan(of),
        program(lower(plan, 0)),
        device(make_cpu_device()),
        self(make_self_communicator()),
        data(kDefaultText, plan.job->training.seq_len, 1),
        interpreter(plan, program, *device, *self, data) {}

  // The first step, which touches fresh memory, goes unobserved.
  void warm_up(Interpreter::OperatorObserver observer) {
    train();
    interpreter.observe_operators(std::move(observer));
  }
  void train() { interpreter.run_step(steps++); }

  const Plan plan;
  const Program program;
  const std::unique_ptr<Device> device;
  const std::unique_ptr<Communicator> self;
  const TextData data;
  Interpreter interpreter;
  std::int64_t steps = 0;
};

void run_observed(const Plan& plan, Interpreter::OperatorObserver observer) {
  Solo solo(plan);
  solo.warm_up(std::move(observer));
  for (int step = 0; step < kObservedSteps; ++step) solo.train();
}

struct Reference::Observed {
  Solo solo{plan_of(kReferenceProbe)};
  std::vector<float> stretches;
  int operators = 0;  // that the latest stretch has
};

Reference::Reference(Communicator& world) : world_(world), observed_(std::make_unique<Observed>()) {
  observed_->solo.warm_up([&observed = *observed_](int, ComputeKind, int, double seconds) {
    if (observed.stretches.empty() || observed.operators == kStretchOperators) {
      observed.stretches.push_back(0);
      observed.operators = 0;
    }
    observed.stretches.back() += static_cast<float>(seconds);
    ++observed.operators;
  });
}

Reference::~Reference() = default;

BusySeconds Reference::seconds(int busy) {
  observed_->stretches.clear();
  sleeping_barrier(world_, kNap);
  if (world_.rank() < busy) observed_->solo.train();
  sleeping_barrier(world_, kNap);
  std::vector<float> slowest = observed_->stretches;
  float count = static_cast<float>(slowest.size());
  world_.all_reduce(&count, &count, 1, DType::fp32, Reduction::max)->wait();
  slowest.resize(static_cast<std::size_t>(count));
  std::vector<float> total = slowest;
  world_.all_reduce(slowest.data(), slowest.data(), slowest.size(), DType::fp32, Reduction::max)->wait();
  world_.all_reduce(total.data(), total.data(), total.size(), DType::fp32, Reduction::sum)->wait();
  BusySeconds seconds;
  for (const float s : slowest) seconds.slowest += static_cast<double>(s);
  for (const float s : total) seconds.mean += static_cast<double>(s) / busy;
  return seconds;
}

double Reference::pace(const DeviceProfile& device) {
  const std::vector<double>& keep = device.concurrency_scale;
  const int cores = std::max(1, static_cast<int>(keep.size()));
  const int busy = std::min(world_.size(), cores);
  const double kept = keep.empty() ? 1 : keep[static_cast<std::size_t>(busy) - 1];
  return device.reference_s / kept / seconds(busy).slowest;
}

}  // namespace orrery::exec
