// gpu_engine.h in the program with CUDA.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "base/error.h"
#include "exec/communicators/staged_communicator.h"
#include "exec/cuda/cuda_device.h"
#include "exec/cuda/nccl_communicator.h"
#include "exec/gpu_engine.h"
#include "exec/launch/launcher.h"

namespace orrery::exec {
namespace {

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

}  // namespace

bool built_with_cuda() {
  return true;
}

void become_cuda_program(char**) {}

std::optional<Engine> make_gpu_engine(std::string_view backend, const Plan& plan, Communicator& control) {
  const int devices = cuda_devices();
  const int mine = local_rank(control);
  // All ranks take the same way: the one that the worst off of them needs.
  const bool none = maximum(control, devices == 0 ? 1 : 0) > 0;
  const bool shared = maximum(control, mine >= devices ? 1 : 0) > 0;
  if (none) {
    if (backend == "auto") return std::nullopt;
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
  return Engine{staged ? "cuda-mpi" : "nccl", std::move(device), std::move(world)};
}

}  // namespace orrery::exec
