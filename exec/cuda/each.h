// One body for every element of something.
#pragma once

#include <cstddef>
#include <cstdint>

#include "exec/cuda/launch.h"
#include "exec/cuda/two_bytes.h"

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
// As many as a thread moves at once.
constexpr std::size_t kPieceBytes = 16;
template <class T>
constexpr int kPiece = static_cast<int>(kPieceBytes / sizeof(T));
template <class T>
using Piece = Some<T, kPiece<T>>;

__host__ __device__ inline bool aligned(const void* data) {
  return reinterpret_cast<std::uintptr_t>(data) % kPieceBytes == 0;
}
// Rows so far apart from an aligned place are aligned.
template <class T>
bool aligned_rows(const T* data, std::int64_t stride) {
  return aligned(data) && stride % kPiece<T> == 0;
}

// x becomes what stands from `row` + column on, up to column `end`, and zero from there on. `column` is a
// multiple of eight; by_pieces: rows are aligned.
template <class T>
__device__ inline void read_eight(float (&x)[8], const T* row, std::int64_t column, std::int64_t end,
                                  bool by_pieces) {
  const T* first = row + column;
  if (by_pieces && column + 8 <= end) {
    Piece<T> pieces[8 / kPiece<T>];
    for (int p = 0; p < 8 / kPiece<T>; ++p) pieces[p] = reinterpret_cast<const Piece<T>*>(first)[p];
    for (int c = 0; c < 8; ++c) x[c] = wide(pieces[c / kPiece<T>].x[c % kPiece<T>]);
  } else {
    for (int c = 0; c < 8; ++c) x[c] = column + c < end ? wide(first[c]) : 0;
  }
}

// out[i] = f(i, in[i]...), in fp32; a piece at a time where `by_pieces`: enough of them on their way for the
// memory's rate.
template <class F, class T, class... In>
__global__ void map_kernel(std::size_t count, bool by_pieces, T* out, F f, const In*... in) {
  constexpr int kSize = kPiece<T>;
  const std::size_t first = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x;
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  const std::size_t pieces = by_pieces ? count / kSize : 0;
  for (std::size_t i = first; i < pieces; i += step) {
    Piece<T> result;
    const auto apply = [&](const auto&... piece) {
      for (int c = 0; c < kSize; ++c)
        put(result.x[c], f(kSize * i + static_cast<std::size_t>(c), wide(piece.x[c])...));
    };
    apply(reinterpret_cast<const Piece<In>*>(in)[i]...);
    reinterpret_cast<Piece<T>*>(out)[i] = result;
  }
  for (std::size_t i = kSize * pieces + first; i < count; i += step) put(out[i], f(i, wide(in[i])...));
}

// out may be one of `in`, which are of the same type.
template <class T, class F, class... In>
void map(std::size_t count, cudaStream_t stream, T* out, F f, const In*... in) {
  static_assert(((sizeof(In) == sizeof(T)) && ...));
  if (count == 0) return;
  const bool by_pieces = (aligned(out) && ... && aligned(in));
  launch(map_kernel<F, T, In...>, blocks_for(by_pieces ? (count + kPiece<T> - 1) / kPiece<T> : count),
         kEachThreads, 0, stream, count, by_pieces, out, f, in...);
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
