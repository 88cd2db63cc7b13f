#include "exec/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#ifdef ORRERY_WITH_CUDA
#include "exec/communicators/staged_communicator.h"
#include "exec/cuda/cuda_device.h"
#include "exec/cuda/nccl_communicator.h"
#include "exec/launch/launcher.h"
#endif

namespace orrery::exec {
namespace {

Engine processors() {
  return {"mpi", make_cpu_device(), nullptr};
}

#ifdef ORRERY_WITH_CUDA

// This rank's number on its host, as Open MPI, Slurm and Hydra (MPICH) tell it.
int local_rank(const Communicator& control) {
  for (const char* name : {"OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID", "MPI_LOCALRANKID"})
    if (const char* value = std::getenv(name); value && *value) return std::atoi(value);
  return control.rank();
}

// The greatest of the ranks' values.
float maximum(Communicator& control, float value) {
  float result = 0;
  control.all_reduce(&value, &result, 1, DType::fp32, Reduction::max)->wait();
  return result;
}

Engine gpus(std::string_view backend, const Plan& plan, Communicator& control) {
  const int devices = cuda_devices();
  const int mine = local_rank(control);
  // All ranks take the same way: the one that the worst off of them needs.
  const bool none = maximum(control, devices == 0 ? 1 : 0) > 0;
  const bool shared = maximum(control, mine >= devices ? 1 : 0) > 0;
  if (none) {
    if (backend == "auto") return processors();
    throw NoAnswer(fmt::format("`backend` {}: no GPU can be used on the host of some rank", backend));
  }
  if (backend == "nccl" && shared)
    throw NoAnswer(fmt::format(
        "`backend` nccl: {} ranks and {} GPUs on this host; NCCL wants a GPU a rank (try `backend` "
        "cuda-mpi)",
        mine + 1, devices));
  // A server answers whoever has pushed, when it can: NCCL's messages run in an order that both ends know.
  const bool asynchronous = plan.choices.asynchronous();
  if (backend == "nccl" && asynchronous)
    throw UserError(fmt::format("`backend` nccl: `sync` {} has no order of messages that NCCL could keep",
                                name_of(plan.choices.sync)),
                    "expected cuda-mpi or auto");
  auto device = std::make_unique<CudaDevice>(mine % devices);
  constexpr int kMostThreads = 8;  // then a pageable copy to the GPU takes longer than what is copied
  device->use_host_threads(std::min(cores_of_a_rank(control.size()), kMostThreads));
  const bool staged = backend == "cuda-mpi" || shared || asynchronous;
  std::vector<int> all;
  for (int rank = 0; rank < control.size(); ++rank) all.push_back(rank);
  constexpr int kWorldKey = 1 << 20;  // apart from the keys of the Program's groups
  auto host = control.split(all, kWorldKey);
  auto world = staged ? make_staged_communicator(*device, std::move(host))
                      : make_nccl_communicator(*device, std::move(host));
  return {staged ? "cuda-mpi" : "nccl", std::move(device), std::move(world)};
}

#endif

}  // namespace

bool wants_gpus(std::string_view backend, const Plan& plan) {
  if (backend == "auto") return plan.job->cluster.profile_of(0).kind == DeviceKind::gpu;
  return backend == "nccl" || backend == "cuda-mpi";
}

void check_backend(std::string_view backend) {
  if (backend == "auto" || backend == "mpi") return;
  if (backend != "nccl" && backend != "cuda-mpi")
    throw UserError(fmt::format("`backend` {}: unknown", backend), "expected auto, mpi, nccl or cuda-mpi");
#ifndef ORRERY_WITH_CUDA
  throw UserError(fmt::format("`backend` {}: this executor was built without CUDA", backend),
                  "expected mpi or auto");
#endif
}

Engine make_engine(std::string_view backend, const Plan& plan, Communicator& control) {
  check_backend(backend);
#ifdef ORRERY_WITH_CUDA
  if (wants_gpus(backend, plan)) return gpus(backend, plan, control);
#else
  static_cast<void>(plan);
  static_cast<void>(control);
#endif
  return processors();
}

}  // namespace orrery::exec
