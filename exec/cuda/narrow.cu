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

struct Packing {
  bool bf16;
  std::uint16_t* to;
  std::int64_t to_stride, rows, columns, to_rows, from_stride;
};

template <class T>
void pack(const Packing& p, const T* from, cudaStream_t stream) {
  constexpr int kNumbers = 8;  // that a thread writes at once
  const Packing packing = p;
  const bool by_pieces = aligned_rows(from, p.from_stride);
  const std::int64_t of_row = p.to_stride / kNumbers;
  const Cells pieces(of_row);
  each(static_cast<std::size_t>(p.to_rows * of_row), stream, [=] __device__(std::size_t i) {
    const std::int64_t row = pieces.row(i);
    const std::int64_t column = kNumbers * pieces.column(i, row);
    float x[kNumbers];
    read_eight(x, from + row * packing.from_stride, column, row < packing.rows ? packing.columns : 0,
               by_pieces);
    Some<std::uint16_t, kNumbers> result;
    for (int c = 0; c < kNumbers; ++c) result.x[c] = packing.bf16 ? to_bf16(x[c]) : to_fp16(x[c]);
    reinterpret_cast<Some<std::uint16_t, kNumbers>*>(packing.to)[i] = result;
  });
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

void pack_matrix(DType type, ConstNumbers from, std::int64_t from_stride, std::uint16_t* to,
                 std::int64_t to_stride, std::int64_t rows, std::int64_t columns, std::int64_t to_rows,
                 cudaStream_t stream) {
  const Packing packing{type == DType::bf16, to, to_stride, rows, columns, to_rows, from_stride};
  if (from.type() == DType::fp32)
    pack(packing, static_cast<const float*>(from.data()), stream);
  else if (type == DType::bf16)
    pack(packing, static_cast<const Bf16*>(from.data()), stream);
  else
    pack(packing, static_cast<const Fp16*>(from.data()), stream);
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
