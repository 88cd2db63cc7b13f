// Stands for exec/cuda/tensor_cores.h where its kernels run on a processor: the same fragments, added up one
// product after the other; copies arrive when they have been waited for.
#pragma once

#include <cmath>

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

// Whoever asks first finds what a barrier before has let all others write.
template <bool Turned, bool DownFirst>
void load_blocks(unsigned (&words)[4], const unsigned* tile, int row_words, int row, int column) {
  const int lane = cuda_emulation::lane();
  for (int block = 0; block < 4; ++block) {
    const int first_row = row + 8 * (DownFirst ? block % 2 : block / 2);
    const int first_column = column + 8 * (DownFirst ? block / 2 : block % 2);
    if (reinterpret_cast<std::uintptr_t>(tile + first_row * row_words + first_column / 2) % 16 != 0)
      throw std::logic_error("a block that ldmatrix cannot read");
    const auto at = [&](int r, int c) {
      const unsigned word = tile[(first_row + r) * row_words + (first_column + c) / 2];
      return word >> (16 * (c % 2)) & 0xffffU;
    };
    const int major = lane / 4;
    const int minor = 2 * (lane % 4);
    words[block] = Turned ? at(minor, major) | at(minor + 1, major) << 16
                          : at(major, minor) | at(major, minor + 1) << 16;
  }
}

inline void copy_sixteen(unsigned* shared, const std::uint16_t* global) {
  if ((reinterpret_cast<std::uintptr_t>(shared) | reinterpret_cast<std::uintptr_t>(global)) % 16 != 0)
    throw std::logic_error("a copy that is not aligned");
  cuda_emulation::copy_later(shared, global);
}
inline void end_group_of_copies() {
  cuda_emulation::end_group();
}
template <int Left>
void wait_for_copies() {
  cuda_emulation::wait_for_groups(Left);
}

inline float power_of_two(float x) {
  return std::exp2(x);
}

}  // namespace orrery::exec::kernels
