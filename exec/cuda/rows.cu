// Rows by index: tokens on their way to experts and back.
#include "exec/cuda/block_reduce.h"
#include "exec/cuda/each.h"
#include "exec/cuda/kernels.h"

namespace orrery::exec::kernels {
namespace {

constexpr int kBlockProducts = 4;

// One warp a product.
template <class T>
__global__ void dot_rows_kernel(const T* a, const T* b, const std::int32_t* index, float* out,
                                std::int64_t products, int per_row, std::int64_t columns) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kBlockProducts + threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  if (i >= products) return;
  const std::int32_t other = index[i];
  float sum = 0;
  if (other >= 0) {
    const T* left = a + i / per_row * columns;
    const T* right = b + other * columns;
    for (std::int64_t c = lane; c < columns; c += 32) sum += wide(left[c]) * wide(right[c]);
  }
  sum = warp_sum(sum);
  if (lane == 0) out[i] = sum;
}

}  // namespace

template <class T>
void Rows<T>::gather(const T* from, const std::int32_t* index, const float* scale, T* to, std::int64_t rows,
                     std::int64_t columns, cudaStream_t stream) {
  const Cells cells(columns);
  each(static_cast<std::size_t>(rows * columns), stream, [=] __device__(std::size_t i) {
    const std::int64_t row = cells.row(i);
    const std::int32_t source = index[row];
    const float value = source < 0 ? 0 : wide(from[source * columns + cells.column(i, row)]);
    put(to[i], scale && source >= 0 ? scale[row] * value : value);
  });
}

template <class T>
void Rows<T>::sum(const T* from, const std::int32_t* index, const float* scale, T* to, std::int64_t rows,
                  int per_row, std::int64_t columns, bool accumulate, cudaStream_t stream) {
  const Cells cells(columns);
  each(static_cast<std::size_t>(rows * columns), stream, [=] __device__(std::size_t i) {
    const std::int64_t row = cells.row(i);
    const std::int64_t first = row * per_row;
    const std::int64_t column = cells.column(i, row);
    float sum = accumulate ? wide(to[i]) : 0;
    for (std::int64_t j = first; j < first + per_row; ++j) {
      if (index[j] < 0) continue;
      const float value = wide(from[index[j] * columns + column]);
      sum += scale ? scale[j] * value : value;
    }
    put(to[i], sum);
  });
}

template <class T>
void Rows<T>::dot(const T* a, const T* b, const std::int32_t* index, float* out, std::int64_t rows,
                  int per_row, std::int64_t columns, cudaStream_t stream) {
  const std::int64_t products = rows * per_row;
  if (products > 0)
    launch(dot_rows_kernel<T>, static_cast<unsigned>((products + kBlockProducts - 1) / kBlockProducts),
           kBlockProducts * 32, 0, stream, a, b, index, out, products, per_row, columns);
}

template struct Rows<float>;
template struct Rows<Bf16>;
template struct Rows<Fp16>;

}  // namespace orrery::exec::kernels
