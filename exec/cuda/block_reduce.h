// Reductions over the threads of one warp, or of one block.
#pragma once

#include <cuda_runtime.h>

namespace orrery::exec::kernels {

constexpr int kReducingThreads = 256;  // of a block that reduces, all in x

// Every lane gets the sum, or the largest, of its warp's values.
template <class T>
__device__ T warp_sum(T value) {
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffffU, value, offset);
  return value;
}

__device__ inline float warp_max(float value) {
  for (int offset = 16; offset > 0; offset /= 2)
    value = fmaxf(value, __shfl_xor_sync(0xffffffffU, value, offset));
  return value;
}

// Everyone gets the sum, or with Max the largest, of all threads' values. Holds the block up.
template <bool Max>
__device__ float reduce_block(float value) {
  __shared__ float part[kReducingThreads / 32];
  __syncthreads();  // `part` may still be read from the call before
  value = Max ? warp_max(value) : warp_sum(value);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = value;
  __syncthreads();
  value = part[0];
  for (int i = 1; i < kReducingThreads / 32; ++i) value = Max ? fmaxf(value, part[i]) : value + part[i];
  return value;
}

}  // namespace orrery::exec::kernels
