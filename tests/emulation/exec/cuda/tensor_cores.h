// Stands for exec/cuda/tensor_cores.h where its kernels run on a processor: the same fragments, added up one product after
// the other.
#pragma once

#include "exec/cuda/two_bytes.h"

#define ORRERY_UNROLL

namespace orrery::exec::kernels {

template <DType T>
unsigned two_of(float first, float second) {
  const auto one = [](float x) { return static_cast<unsigned>(T == DType::bf16 ? to_bf16(x) : to_fp16(x)); };
  return one(first) | one(second) << 16;
}

template <DType T>
void multiply_add(float (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  const unsigned mine[6] = {a[0], a[1], a[2], a[3], b0, b1};
  const cuda_emulation::Words* all = cuda_emulation::gather(mine);
  const auto at = [](unsigned word, int half) {
    const auto bits = static_cast<std::uint16_t>(word >> (16 * half));
    return T == DType::bf16 ? from_bf16(bits) : from_fp16(bits);
  };
  const int lane = cuda_emulation::lane();
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 4 + 8 * (i / 2);
    const int column = 2 * (lane % 4) + i % 2;
    for (int k = 0; k < 16; ++k) {
      const int holder = k % 8 / 2;  // of a row, or column, among four lanes
      const unsigned left = all[row % 8 * 4 + holder].word[row / 8 + 2 * (k / 8)];
      const unsigned right = all[column * 4 + holder].word[4 + k / 8];
      sums[i] += at(left, k % 2) * at(right, k % 2);
    }
  }
}

}  // namespace orrery::exec::kernels
