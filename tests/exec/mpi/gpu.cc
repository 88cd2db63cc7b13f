// What the suite does on GPUs, real ones or (ORRERY_TEST_EMULATED) emulated.
#include "gpu.h"

#include <fmt/format.h>
#include <nccl.h>

#include <string>
#include <utility>

#include "base/error.h"
#include "equivalence.h"
#include "exec/communicators/staged_communicator.h"
#include "exec/cuda/cuda_device.h"
#include "exec/cuda/nccl_communicator.h"
#include "exec/run/interpreter.h"
#include "program/lower/lowering.h"
#include "tests/support/walked.h"
#include "through_device.h"
#include "training_runs.h"

namespace orrery::exec::test {
namespace {

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

#ifdef ORRERY_TEST_EMULATED

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
#ifdef ORRERY_TEST_EMULATED
    if (!walked(static_cast<std::size_t>(known / every), 3))
      continue;  // by threes: nccl and staged take turns
#endif
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

TrainedOn first_gpu(Communicator& world) {
  auto device = std::make_unique<CudaDevice>(0);
  auto staged = make_staged_communicator(*device, beneath_device(world));
  return {std::move(device), std::move(staged)};
}

}  // namespace

const GpuSuite* gpu_suite() {
  static constexpr GpuSuite kSuite{cuda_devices, first_gpu, check_nccl, check_cuda};
  return &kSuite;
}

}  // namespace orrery::exec::test
