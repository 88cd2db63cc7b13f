// Stands for exec/cuda/launch.h where its kernels run on a processor.
#pragma once

#include <cstddef>

#include "exec/cuda/check.h"

namespace orrery::exec::kernels {

template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes, cudaStream_t,
            Arguments... arguments) {
  cuda_emulation::submit(
      [=] { cuda_emulation::run(grid, block, shared_bytes, [&] { kernel(arguments...); }); });
}

inline float* shared_floats() {
  return static_cast<float*>(cuda_emulation::shared_memory());
}

}  // namespace orrery::exec::kernels
