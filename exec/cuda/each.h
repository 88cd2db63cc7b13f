// One body for every element of something.
#pragma once

#include <cstddef>

#include "exec/cuda/launch.h"

namespace orrery::exec::kernels {

constexpr int kEachThreads = 256;

inline unsigned blocks_for(std::size_t count) {
  const std::size_t wanted = (count + kEachThreads - 1) / kEachThreads;
  return static_cast<unsigned>(wanted < 65535 ? wanted : 65535);
}

// A grid-stride loop, so that one launch covers any count.
template <class Body>
__global__ void each_kernel(std::size_t count, Body body) {
  for (std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x; i < count;
       i += static_cast<std::size_t>(gridDim.x) * blockDim.x)
    body(i);
}

// Runs body(i) for i in [0, count).
template <class Body>
void each(std::size_t count, cudaStream_t stream, Body body) {
  if (count > 0) launch(each_kernel<Body>, blocks_for(count), kEachThreads, 0, stream, count, body);
}

}  // namespace orrery::exec::kernels
