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
                   std::int64_t to_stride, std::int64_t rows, std::int64_t columns, cudaStream_t stream) {
  const Cells cells(columns);
  each(static_cast<std::size_t>(rows * columns), stream, [=] __device__(std::size_t i) {
    const std::int64_t row = cells.row(i);
    const std::int64_t column = cells.column(i, row);
    put_factor(type, to, row * to_stride + column, from[row * from_stride + column]);
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
  each(count, stream, [=] __device__(std::size_t i) {
    data[i] = bf16 ? from_bf16(to_bf16(data[i])) : from_fp16(to_fp16(data[i]));
  });
}

}  // namespace orrery::exec::kernels
