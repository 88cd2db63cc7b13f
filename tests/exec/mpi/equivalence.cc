// Every plan must train as one rank would: that proves that it was executed and not acted.
#include "equivalence.h"

#include <fmt/format.h>

#include <cmath>
#include <numeric>
#include <optional>

#include "base/random.h"
#include "exec/communicators/collectives.h"
#include "exec/communicators/gather.h"
#include "exec/communicators/staged_communicator.h"
#include "exec/math/objective.h"
#include "exec/run/interpreter.h"
#include "exec/state/digest.h"
#include "program/lower/lowering.h"
#include "test_plans.h"
#ifdef ORRERY_TEST_GPU
#include <nccl.h>

#include "base/error.h"
#include "exec/cuda/cuda_device.h"
#include "exec/cuda/nccl_communicator.h"
#include "through_device.h"
#endif

namespace orrery::exec::test {
namespace {

constexpr std::size_t kLastSteps = 5;    // over which a lossy run's loss is averaged
constexpr double kLossTolerance = 1e-4;  // in fp32

struct Outcome {
  std::vector<double> loss;
  std::map<std::string, TensorDigest> digest;
};

// Every weight to one of its neighbours, by a seed: as if the whole run had been rounded differently.
// Weights in host memory.
void round_otherwise(Parameters& parameters, std::uint64_t seed) {
  const CounterRandom random(seed, 0x726F756E);
  std::uint64_t next = 0;
  for (const HeldTensor& tensor : parameters.held()) {
    float* weights = parameters.weights(tensor.bucket) + tensor.offset;
    for (std::int64_t i = 0; i < tensor.elements; ++i)
      weights[i] = std::nextafter(weights[i], random.uniform(next++) < 0.5 ? -HUGE_VALF : HUGE_VALF);
  }
}

// `control` works on host memory, `world` on the device's; they have the same ranks. `rounding`: a seed to
// round the initial weights by; 0: as they are.
Outcome train_plan_on(Device& device, const Plan& plan, Communicator& world, Communicator& control, int steps,
                      std::uint64_t rounding = 0) {
  const Program program = lower(plan, world.rank());
  const Workload& workload = plan.job->workload;
  const std::uint64_t seed = plan.job->training.seed;
  std::optional<TextData> text;
  std::optional<ImageData> images;
  std::optional<Interpreter> chosen;
  if (workload.transformer) {
    chosen.emplace(plan, program, device, world, text.emplace(kDefaultText, kSeqLen, seed));
  } else {
    const ImageOperator& first = *workload.operators.front().image;
    chosen.emplace(plan, program, device, world, images.emplace("", first.input, 10, seed, kGlobalBatch));
  }
  Interpreter& interpreter = *chosen;
  if (rounding != 0) round_otherwise(interpreter.parameters(), rounding);
  std::vector<double> mine;
  for (int step = 0; step < steps; ++step) {
    interpreter.run_step(step);
    mine.push_back(interpreter.loss_sum() /
                   static_cast<double>(kGlobalBatch * predictions_per_sample(*plan.job)));
  }
  Outcome outcome;
  outcome.loss.assign(static_cast<std::size_t>(steps), 0);
  const std::string bytes(reinterpret_cast<const char*>(mine.data()), mine.size() * sizeof(double));
  for (const std::string& part : gather_to_root(control, bytes))
    for (int step = 0; step < steps; ++step)
      outcome.loss[static_cast<std::size_t>(step)] += reinterpret_cast<const double*>(part.data())[step];
  outcome.digest = digest_parameters(plan, interpreter.parameters(), device, control);
  return outcome;
}

Outcome train_plan(const Plan& plan, Communicator& world, int steps, std::uint64_t rounding = 0) {
  const auto device = make_cpu_device();
  return train_plan_on(*device, plan, world, world, steps, rounding);
}

double mean_of_last(const std::vector<double>& loss) {
  return std::accumulate(loss.end() - kLastSteps, loss.end(), 0.0) / kLastSteps;
}

struct Comparison {
  double loss = 0;        // largest relative difference
  double parameters = 0;  // largest, by tensor's norm
  std::string fault;      // empty where the two agree
};

// The larger, and not a number if either is not.
double worse(double a, double b) {
  return b > a || std::isnan(b) ? b : a;
}

bool trains_exactly(const PlanCase& c) {
  return c.precision == DType::fp32 && c.lossy == 0;
}

Comparison compare(const Outcome& parallel, const Outcome& serial, const PlanCase& c) {
  // Adam divides by the gradient's own size: what is zero but for rounding moves by the learning rate.
  const bool exact = c.precision == DType::fp32;
  const bool parameters = exact && (c.optimizer == Optimizer::sgd || c.optimizer == Optimizer::momentum);
  const double tolerance = exact ? kLossTolerance : 1e-2;
  const double lossy = c.lossy;
  Comparison result;
  if (lossy > 0) {
    const double expected = mean_of_last(serial.loss);
    result.loss = std::abs(mean_of_last(parallel.loss) - expected) / expected;
    if (!(result.loss <= lossy)) result.fault = "the last losses' mean is too far away";
    return result;
  }
  for (std::size_t step = 0; step < serial.loss.size(); ++step) {
    const double error = std::abs(parallel.loss[step] - serial.loss[step]) / std::abs(serial.loss[step]);
    result.loss = worse(result.loss, error);
    if (!(error <= tolerance))
      result.fault =
          fmt::format("loss of step {}: {} instead of {}", step, parallel.loss[step], serial.loss[step]);
  }
  if (!parameters) return result;
  // Softmax does not see a bias that all keys have: what such a tensor holds is rounding, and nothing else.
  double largest = 0;
  for (const auto& [name, expected] : serial.digest) largest = std::max(largest, expected.norm);
  const double rounding = 1e-8 * largest;
  for (const auto& [name, expected] : serial.digest) {
    const TensorDigest& got = parallel.digest.at(name);
    double error = std::abs(got.norm - expected.norm);
    for (std::size_t k = 0; k < kProjections; ++k)
      error = std::max(error, std::abs(got.projections[k] - expected.projections[k]));
    if (error <= rounding) continue;
    result.parameters = worse(result.parameters, error / expected.norm);
    if (!(error <= c.parameter_tolerance * expected.norm))
      result.fault = fmt::format("{} differs by {} of its norm", name, error / expected.norm);
  }
  return result;
}

// What is beyond the tolerance is as far from one rank's run as that is from itself.
bool as_far_as_rounding(const Comparison& seen, const Comparison& own, const PlanCase& c) {
  constexpr double kTimes = 2;
  return seen.loss <= std::max(kLossTolerance, kTimes * own.loss) &&
         seen.parameters <= std::max(c.parameter_tolerance, kTimes * own.parameters);
}

// How far one rank's run is from itself where it is rounded differently, at worst, until that is as far as
// what was seen. Where a ReLU's input is zero but for rounding (the norm of a dead channel), its gradient
// goes either way, and twenty steps make much of that: such a model says nothing to the last digits, on one
// rank as on many.
Comparison own_rounding(const Comparison& seen, const PlanCase& c, const Outcome& serial,
                        Communicator& self) {
  constexpr std::uint64_t kMost = 32;
  Comparison worst;
  for (std::uint64_t rounding = 1; rounding <= kMost && !as_far_as_rounding(seen, worst, c); ++rounding) {
    const Comparison other = compare(train_plan(make_plan(serial_of(c)), self, c.steps, rounding), serial, c);
    worst.loss = worse(worst.loss, other.loss);
    worst.parameters = worse(worst.parameters, other.parameters);
  }
  return worst;
}

#ifdef ORRERY_TEST_GPU
// Each rank's own, or as many ranks a GPU as it takes; what is emulated is one a rank.
int gpu_of(const Communicator& world) {
  return world.rank() % cuda_devices();
}

// A GPU a rank, which NCCL wants.
bool nccl_runs([[maybe_unused]] const Communicator& world) {
#ifdef ORRERY_TEST_EMULATED
  return true;
#else
  return world.size() <= cuda_devices();
#endif
}

Comparison same_on_cuda(Communicator& world, PlanCase c, bool nccl) {
  // Few steps: what is emulated is slow, and rounding that differs is not to grow. In the first, operators
  // run call by call; in the second they are recorded; the third only replays them.
  c.steps = 3;
  c.lossy = 0;
  // What lies between two of int8's steps goes either way.
  if (c.choices.grad_compression != Compression::none) c.parameter_tolerance = 1e-3;
  c.learns = false;
  const Plan plan = make_plan(c);
  const Outcome expected = train_plan(plan, world, c.steps);
  CudaDevice device(gpu_of(world));
  auto beneath = beneath_device(world);
  const auto between = nccl ? make_nccl_communicator(device, std::move(beneath))
                            : make_staged_communicator(device, std::move(beneath));
  const Outcome got = train_plan_on(device, plan, *between, world, c.steps);
  return world.rank() == 0 ? compare(got, expected, c) : Comparison{};
}
#endif

}  // namespace

#ifdef ORRERY_TEST_GPU
#ifdef ORRERY_TEST_EMULATED
namespace {

// NCCL runs what was planned, where it has that for the collective, and else what it likes.
void check_forced_methods(Communicator& world, CudaDevice& device) {
  world.set_algorithms([](CollectiveKind, double bytes) {
    CollectivePlan plan;
    plan.algorithm = bytes < 1024 ? Algorithm::tree : Algorithm::nvls;
    plan.protocol = bytes < 1024 ? Protocol::ll128 : Protocol::simple;
    return plan;
  });
  constexpr std::size_t kMost = 1024;
  auto* data = static_cast<float*>(device.allocate(kMost * sizeof(float)));
  device.fill(data, kMost, 0);
  const auto expect = [](int algorithm, int protocol, const char* what) {
    const nccl_emulation::Method method = nccl_emulation::latest_method();
    if (method.algorithm != algorithm || method.protocol != protocol)
      throw InternalError(
          fmt::format("{} ran as algorithm {} and protocol {}", what, method.algorithm, method.protocol));
  };
  world.all_reduce(data, data, 16, DType::fp32, Reduction::sum)->wait();
  expect(0, 1, "a short all-reduce");
  world.all_reduce(data, data, kMost, DType::fp32, Reduction::sum)->wait();
  expect(4, 2, "a long all-reduce");
  world.broadcast(data, 16, DType::fp32, 0)->wait();
  expect(-1, -1, "a broadcast, for which there are no trees");
  device.synchronize();
  device.release(data);
}

}  // namespace
#endif

void check_nccl(Communicator& world) {
  CudaDevice device(gpu_of(world));
#ifdef ORRERY_TEST_EMULATED
  check_forced_methods(*make_nccl_communicator(device, beneath_device(world)), device);
#endif
  ThroughDevice nccl(device, make_nccl_communicator(device, beneath_device(world)));
  check_communicator(nccl);
}

// Weights in 8 and 4 bits, and magnitudes (exec/state/frozen_weights.cc).
bool gpus_refuse(const PlanCase& c) {
  const Plan plan = make_plan(c);
  if (!plan.job->workload.transformer) return false;
  const FineTuning& tuning = plan.job->workload.transformer->fine_tuning;
  return tuning.dora || tuning.base != BaseType::none;
}

// What a step holds, by itself: in two bytes about half of what it holds in fp32 (statistics stay).
int check_memory(Communicator& world) {
  const auto arena_of = [&](DType precision) {
    PlanCase c = all_cases().front();
    c.precision = precision;
    const Plan plan = make_plan(c);
    const Program program = lower(plan, world.rank());
    CudaDevice device(gpu_of(world));
    const TextData text(kDefaultText, kSeqLen, plan.job->training.seed);
    const auto staged = make_staged_communicator(device, beneath_device(world));
    return static_cast<double>(Interpreter(plan, program, device, *staged, text).arena_bytes());
  };
  const double words = arena_of(DType::fp32);
  const double share = arena_of(DType::bf16) / words;
  const bool half = share > 0.48 && share < 0.56;
  fmt::print("a step's values in bf16: {:.2f} of {:.0f} bytes in fp32{}\n", share, words,
             half ? "" : ", which is not about half");
  return half ? 0 : 1;
}

int check_cuda(Communicator& world, int every, DType precision) {
  int faults = world.size() == 1 ? check_memory(world) : 0;
  int known = 0;
  for (PlanCase c : all_cases()) {
    if (c.choices.world() != world.size()) continue;
    if (c.precision == DType::fp32) c.precision = precision;
    if (known++ % every != 0) continue;
    const bool nccl = nccl_runs(world) && known / every % 2 == 0;
    Comparison seen;
    bool refused = false;
    try {
      seen = same_on_cuda(world, c, nccl);
    } catch (const UserError&) {
      refused = true;
    }
    if (refused != gpus_refuse(c)) seen.fault = refused ? "refused" : "not refused";
    if (world.rank() == 0)
      fmt::print("{:<42} {:<6} differs by {:.0e}, parameters {:.0e}  {}\n", c.name, nccl ? "nccl" : "staged",
                 seen.loss, seen.parameters, seen.fault.empty() ? "equal" : seen.fault);
    if (!seen.fault.empty()) ++faults;
    world.barrier();
  }
  return faults;
}
#endif

std::unique_ptr<Communicator> beneath_device(Communicator& world) {
  constexpr int kKey = 1;
  std::vector<int> everyone(static_cast<std::size_t>(world.size()));
  std::iota(everyone.begin(), everyone.end(), 0);
  return world.split(everyone, kKey);
}

int check_equivalence(Communicator& world, const std::string& which, std::uint64_t series) {
  int faults = 0;
  int known = 0;
  int sensitive = 0;
  constexpr int kRandomPlans = 12;
  const bool random = which == "random";
  const std::vector<PlanCase> cases = random ? random_cases(world.size(), kRandomPlans, series)
                                      : which == "rehearsal" ? rehearsal_cases(world.size())
                                      : which == "vit"       ? patch_cases()
                                      : which == "v"         ? v_cases()
                                                             : all_cases();
  for (const PlanCase& c : cases) {
    if (c.choices.world() != world.size()) continue;
    if (which == "smoke" && ++known > 3) break;
    const Outcome parallel = train_plan(make_plan(c), world, c.steps);
    if (world.rank() == 0) {
      const auto self = make_self_communicator();
      const Outcome serial = train_plan(make_plan(serial_of(c)), *self, c.steps);
      Comparison seen = compare(parallel, serial, c);
      std::string verdict = "equal";
      if (random && !seen.fault.empty() && trains_exactly(c)) {
        const Comparison own = own_rounding(seen, c, serial, *self);
        verdict =
            fmt::format("one rank rounded differently: {:.0e}, parameters {:.0e}", own.loss, own.parameters);
        if (as_far_as_rounding(seen, own, c)) {
          seen.fault.clear();
          ++sensitive;
        } else {
          seen.fault += "; " + verdict;
        }
      }
      if (c.learns && !(mean_of_last(serial.loss) < serial.loss.front()))
        seen.fault = "the serial run does not learn";
      fmt::print("{:<42} loss {:.4f} -> {:.4f}  differs by {:.0e}{}  {}\n", c.name, serial.loss.front(),
                 serial.loss.back(), seen.loss,
                 seen.parameters > 0 ? fmt::format(", parameters {:.0e}", seen.parameters) : "",
                 seen.fault.empty() ? verdict : seen.fault);
      if (!seen.fault.empty()) ++faults;
    }
    world.barrier();
  }
  // Else the draws would prove nothing.
  if (4 * sensitive > kRandomPlans) {
    fmt::print("{} of {} random models are as good as rounding\n", sensitive, kRandomPlans);
    ++faults;
  }
  return faults;
}

}  // namespace orrery::exec::test
