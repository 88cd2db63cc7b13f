// Which device and which communicator a run uses.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "exec/communicators/communicator.h"
#include "exec/device/device.h"
#include "program/plan.h"

namespace orrery::exec {

struct Engine {
  std::string backend;  // the one that was taken: mpi, nccl, cuda-mpi
  std::unique_ptr<Device> device;
  std::unique_ptr<Communicator> world;  // over the device's memory; null: the control communicator serves
};

// Whether `backend`, one of make_engine's, takes GPUs for that plan where there are some.
bool wants_gpus(std::string_view backend, const Plan& plan);

// Throws UserError on an unknown name, and on a CUDA backend in a build without CUDA.
void check_backend(std::string_view backend);

// Collective over `control`. `backend`:
//   mpi       processors, MPI
//   nccl      one GPU a rank, NCCL bootstrapped over `control`
//   cuda-mpi  GPUs, possibly shared by several ranks; messages are staged through host memory
//   auto      where the plan's devices are GPUs and every rank has one here, nccl; cuda-mpi where ranks share
//             one or the plan has asynchronous servers; else mpi
// Throws NoAnswer when GPUs are asked for and this machine has none, UserError for nccl with asynchronous
// servers.
Engine make_engine(std::string_view backend, const Plan& plan, Communicator& control);

}  // namespace orrery::exec
