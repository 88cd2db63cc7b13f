// A communicator whose fp32 tensors travel in a two-byte type: what mixed precision sends is what the Program
// says, where the device holds it in fp32 words (docs/executor.md, precision).
#pragma once

#include <memory>

#include "exec/communicators/communicator.h"
#include "exec/device/device.h"

namespace orrery::exec {

// Over `inner`, which must live as long. Operations on fp32 are narrowed to `type` (fp16 or bf16), moved and
// reduced in it, and widened; on other types they are inner's own. An exchange is of fp32 tensors alone, its
// messages' `bytes` those of fp32. On the device's memory.
std::unique_ptr<Communicator> make_narrow_communicator(Communicator& inner, Device& device, DType type);

}  // namespace orrery::exec
