// How kernels are started, and where a block's memory of a size known at the launch lies. In one place, so
// that tests/emulation can put its own in and run the same kernels on a processor.
#pragma once

#include <cstddef>

#include "exec/cuda/check.h"

namespace orrery::exec::kernels {

// Asynchronous; throws InternalError where the launch itself is refused.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes,
            cudaStream_t stream, Arguments... arguments) {
  kernel<<<grid, block, shared_bytes, stream>>>(arguments...);
  ORRERY_CUDA(cudaGetLastError());
}

__device__ inline float* shared_floats() {
  extern __shared__ __align__(16) float memory[];  // cp.async wants as much
  return memory;
}

}  // namespace orrery::exec::kernels
