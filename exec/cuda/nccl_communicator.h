// Collectives over NCCL. Every operation runs on a stream of the communicator's own: it waits for what the
// device's compute stream holds at the time of the call, and Request::wait() makes the compute stream wait
// for it.
#pragma once

#include <memory>

#include "exec/communicators/communicator.h"
#include "exec/cuda/cuda_device.h"

namespace orrery::exec {

// Collective over `bootstrap` (MPI, as nccl-tests does: it carries NCCL's unique ids), whose ranks become
// NCCL's; null: one rank. The planned algorithms and protocols are forced (exec/cuda/nccl_tuner.h);
// NCCL_ALGO, NCCL_PROTO and NCCL_TUNER_PLUGIN in the environment go before. NCCL's asynchronous errors are
// looked for whenever a request is tested. They, and any exception that unwinds past requests under way,
// abort all of the process's communicators, so that a lost peer ends the job instead of hanging it.
std::unique_ptr<Communicator> make_nccl_communicator(CudaDevice& device,
                                                     std::unique_ptr<Communicator> bootstrap);

}  // namespace orrery::exec
