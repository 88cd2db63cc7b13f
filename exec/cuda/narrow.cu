// Between fp32 and two-byte types.
#include "exec/cuda/each.h"
#include "exec/cuda/kernels.h"
#include "exec/cuda/two_bytes.h"

namespace orrery::exec::kernels {
namespace {

constexpr float kLargestHalf = 65504;

__device__ float saturated(float x) {
  return x > kLargestHalf ? kLargestHalf : x < -kLargestHalf ? -kLargestHalf : x;
}

}  // namespace

void narrow(DType type, const float* from, std::uint16_t* to, std::size_t count, float scale, bool saturate,
            cudaStream_t stream) {
  const bool bf16 = type == DType::bf16;
  each(count, stream, [=] __device__(std::size_t i) {
    const float x = from[i] * scale;
    to[i] = bf16 ? to_bf16(x) : to_fp16(saturate ? saturated(x) : x);
  });
}

void narrow_matrix(DType type, const float* from, std::int64_t from_stride, std::uint16_t* to,
                   std::int64_t to_stride, std::int64_t rows, std::int64_t columns, std::int64_t to_rows,
                   cudaStream_t stream) {
  constexpr int kPiece = 8;  // numbers that a thread writes at once
  const bool by_fours = aligned(from) && from_stride % 4 == 0;
  const bool bf16 = type == DType::bf16;
  const Cells pieces(to_stride / kPiece);
  each(static_cast<std::size_t>(to_rows * (to_stride / kPiece)), stream, [=] __device__(std::size_t i) {
    const std::int64_t row = pieces.row(i);
    const std::int64_t column = kPiece * pieces.column(i, row);
    float x[kPiece];
    read_eight(x, from + row * from_stride, column, row < rows ? columns : 0, by_fours);
    Eight result;
    for (int c = 0; c < kPiece; ++c) result.x[c] = bf16 ? to_bf16(x[c]) : to_fp16(x[c]);
    reinterpret_cast<Eight*>(to)[i] = result;
  });
}

void widen(DType type, const std::uint16_t* from, float* to, std::size_t count, float scale,
           cudaStream_t stream) {
  const bool bf16 = type == DType::bf16;
  each(count, stream,
       [=] __device__(std::size_t i) { to[i] = (bf16 ? from_bf16(from[i]) : from_fp16(from[i])) * scale; });
}

void round_to(DType type, float* data, std::size_t count, cudaStream_t stream) {
  const bool bf16 = type == DType::bf16;
  map(
      count, stream, data,
      [=] __device__(std::size_t, float x) { return bf16 ? from_bf16(to_bf16(x)) : from_fp16(to_fp16(x)); },
      data);
}

}  // namespace orrery::exec::kernels
