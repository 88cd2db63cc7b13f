// Collectives over NCCL. Every operation runs on the communicator's own stream: it waits for what the
// device's compute stream holds at the time of the call, and Request::wait() makes the compute stream wait
// for it.
#pragma once

#include <memory>

#include "exec/communicator.h"
#include "exec/cuda/cuda_device.h"

namespace orrery::exec {

// Collective over `bootstrap` (MPI, as nccl-tests does: it carries the unique id), whose ranks become NCCL's.
// With a null `bootstrap` the communicator has one rank. NCCL's asynchronous errors are looked for whenever
// the host waits, and abort the communicator, so that a lost peer ends the job instead of hanging it.
std::unique_ptr<Communicator> make_nccl_communicator(CudaDevice& device, Communicator* bootstrap);

}  // namespace orrery::exec
