// Device memory over a communicator that only knows host memory: CUDA with several ranks on a machine whose
// GPUs NCCL cannot join (one GPU, or none between the ranks), and the reference that the NCCL communicator is
// tested against.
#pragma once

#include <memory>

#include "exec/communicators/communicator.h"
#include "exec/device/device.h"

namespace orrery::exec {

// Copies operands to the host when an operation is issued and results back when it is waited for. `device`
// must outlive the result; `host` becomes its own.
std::unique_ptr<Communicator> make_staged_communicator(Device& device, std::unique_ptr<Communicator> host);

}  // namespace orrery::exec
