// One body for every element of something.
#pragma once

#include <cstddef>
#include <cstdint>

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

// So many numbers side by side, read and written at once.
template <class T, int Count>
struct alignas(Count * sizeof(T)) Some {
  T x[Count];
};
using Four = Some<float, 4>;
using Eight = Some<std::uint16_t, 8>;  // of a two-byte type

__host__ __device__ inline bool aligned(const void* data) {
  return reinterpret_cast<std::uintptr_t>(data) % sizeof(Four) == 0;
}

// x becomes what stands from `row` + column on, up to column `end`, and zero from there on. by_fours: rows
// and columns are multiples of four apart from an aligned place.
__device__ inline void read_eight(float (&x)[8], const float* row, std::int64_t column, std::int64_t end,
                                  bool by_fours) {
  const float* first = row + column;
  if (by_fours && column + 8 <= end) {
    const Four halves[2] = {reinterpret_cast<const Four*>(first)[0], reinterpret_cast<const Four*>(first)[1]};
    for (int c = 0; c < 8; ++c) x[c] = halves[c / 4].x[c % 4];
  } else {
    for (int c = 0; c < 8; ++c) x[c] = column + c < end ? first[c] : 0;
  }
}

// out[i] = f(i, in[i]...), four elements at a time where `by_fours`: enough of them on their way for the
// memory's rate.
template <class F, class... In>
__global__ void map_kernel(std::size_t count, bool by_fours, float* out, F f, const In*... in) {
  const std::size_t first = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x;
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  const std::size_t fours = by_fours ? count / 4 : 0;
  for (std::size_t i = first; i < fours; i += step) {
    Four result;
    const auto apply = [&](const auto&... four) {
      for (int c = 0; c < 4; ++c) result.x[c] = f(4 * i + static_cast<std::size_t>(c), four.x[c]...);
    };
    apply(reinterpret_cast<const Four*>(in)[i]...);
    reinterpret_cast<Four*>(out)[i] = result;
  }
  for (std::size_t i = 4 * fours + first; i < count; i += step) out[i] = f(i, in[i]...);
}

// out may be one of `in`, which are of floats.
template <class F, class... In>
void map(std::size_t count, cudaStream_t stream, float* out, F f, const In*... in) {
  if (count == 0) return;
  const bool by_fours = (aligned(out) && ... && aligned(in));
  launch(map_kernel<F, In...>, blocks_for(by_fours ? (count + 3) / 4 : count), kEachThreads, 0, stream, count,
         by_fours, out, f, in...);
}

// Rows and columns of an index, by a multiplication where that is enough (Granlund and Montgomery, PLDI
// 1994): a division of 64 bits takes a multiprocessor longer than the memory takes for the element.
class Cells {
 public:
  explicit Cells(std::int64_t columns) : columns_(columns) {
    if (columns <= 0 || columns > kSmall) return;
    while ((std::int64_t{1} << shift_) < columns) ++shift_;
    shift_ += 31;
    multiplier_ =
        static_cast<std::uint32_t>(((std::uint64_t{1} << shift_) + static_cast<std::uint64_t>(columns) - 1) /
                                   static_cast<std::uint64_t>(columns));
  }

  __device__ std::int64_t row(std::size_t index) const {
    if (multiplier_ == 0 || index > kSmall) return static_cast<std::int64_t>(index) / columns_;
    return static_cast<std::int64_t>(index * multiplier_ >> shift_);
  }
  __device__ std::int64_t column(std::size_t index, std::int64_t row) const {
    return static_cast<std::int64_t>(index) - row * columns_;
  }
  __device__ std::int64_t column(std::size_t index) const { return column(index, row(index)); }

 private:
  static constexpr std::int64_t kSmall = 0x7fffffff;
  std::int64_t columns_;
  std::uint32_t multiplier_ = 0;  // 0: divide
  int shift_ = 0;
};

}  // namespace orrery::exec::kernels
