// Kernels that reduce over a row: norms (a warp a row) and cross entropy (a block a row).
#include <cfloat>

#include "exec/cuda/block_reduce.h"
#include "exec/cuda/each.h"
#include "exec/cuda/kernels.h"
#include "exec/cuda/launch.h"

namespace orrery::exec::kernels {
namespace {

constexpr int kThreads = kReducingThreads;

// Norms: a warp a row, which needs no barriers. What is read behind a write is read a few at a time before
// it, so that the memory has enough to do. Of two bytes a lane takes a Width of neighbours at once, where
// rows allow it.
constexpr int kNormWarps = 8;
template <int Width>
constexpr int kAtOnce = Width == 1 ? 4 : 1;

template <int Width, class T>
__device__ const Some<T, Width>& some(const T* row, std::int64_t i) {
  return *reinterpret_cast<const Some<T, Width>*>(row + i);
}

template <int Width, class T>
__global__ void norm_forward_kernel(bool rms, const T* x, const float* weight, const float* bias, T* y,
                                    float* mean, float* inverse, std::int64_t rows, std::int64_t columns,
                                    float epsilon) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kNormWarps + threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  if (row >= rows) return;
  x += row * columns;
  y += row * columns;
  float sum = 0;
  if (!rms) {
    for (std::int64_t i = Width * lane; i < columns; i += 32 * Width) {
      const Some<T, Width> part = some<Width>(x, i);
      for (int c = 0; c < Width; ++c) sum += wide(part.x[c]);
    }
    sum = warp_sum(sum) / static_cast<float>(columns);
  }
  float squares = 0;
  for (std::int64_t i = Width * lane; i < columns; i += 32 * Width) {
    const Some<T, Width> part = some<Width>(x, i);
    for (int c = 0; c < Width; ++c) squares += (wide(part.x[c]) - sum) * (wide(part.x[c]) - sum);
  }
  squares = warp_sum(squares) / static_cast<float>(columns);
  const float scale = rsqrtf(squares + epsilon);
  for (std::int64_t first = Width * lane; first < columns; first += 32 * Width * kAtOnce<Width>) {
    Some<T, Width> result[kAtOnce<Width>];
    for (int j = 0; j < kAtOnce<Width>; ++j) {
      const std::int64_t i = first + 32 * Width * j;
      if (i >= columns) continue;
      const Some<T, Width> part = some<Width>(x, i);
      for (int c = 0; c < Width; ++c)
        put(result[j].x[c], (wide(part.x[c]) - sum) * scale * weight[i + c] + (bias ? bias[i + c] : 0));
    }
    for (int j = 0; j < kAtOnce<Width>; ++j)
      if (first + 32 * Width * j < columns)
        *reinterpret_cast<Some<T, Width>*>(y + first + 32 * Width * j) = result[j];
  }
  if (lane == 0) {
    if (!rms) mean[row] = sum;
    inverse[row] = scale;
  }
}

// dx (+)= inverse * (w*dy - mean(w*dy) - xhat * mean(w*dy * xhat)); RMS norm has no mean term.
template <int Width, class T>
__global__ void norm_backward_kernel(bool rms, const T* dy, const T* x, const float* weight,
                                     const float* mean, const float* inverse, T* dx, bool accumulate,
                                     std::int64_t rows, std::int64_t columns) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kNormWarps + threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  if (row >= rows) return;
  dy += row * columns;
  x += row * columns;
  dx += row * columns;
  const float center = rms ? 0 : mean[row];
  const float scale = inverse[row];
  float sum = 0;
  float dot = 0;
  for (std::int64_t i = Width * lane; i < columns; i += 32 * Width) {
    const Some<T, Width> upstream = some<Width>(dy, i);
    const Some<T, Width> part = some<Width>(x, i);
    for (int c = 0; c < Width; ++c) {
      const float g = wide(upstream.x[c]) * weight[i + c];
      sum += g;
      dot += g * (wide(part.x[c]) - center) * scale;
    }
  }
  sum = rms ? 0 : warp_sum(sum) / static_cast<float>(columns);
  dot = warp_sum(dot) / static_cast<float>(columns);
  for (std::int64_t first = Width * lane; first < columns; first += 32 * Width * kAtOnce<Width>) {
    Some<T, Width> result[kAtOnce<Width>];
    for (int j = 0; j < kAtOnce<Width>; ++j) {
      const std::int64_t i = first + 32 * Width * j;
      if (i >= columns) continue;
      const Some<T, Width> upstream = some<Width>(dy, i);
      const Some<T, Width> part = some<Width>(x, i);
      Some<T, Width> before = {};
      if (accumulate) before = some<Width>(dx, i);
      for (int c = 0; c < Width; ++c)
        put(result[j].x[c],
            (accumulate ? wide(before.x[c]) : 0) + scale * (wide(upstream.x[c]) * weight[i + c] - sum -
                                                            (wide(part.x[c]) - center) * scale * dot));
    }
    for (int j = 0; j < kAtOnce<Width>; ++j)
      if (first + 32 * Width * j < columns)
        *reinterpret_cast<Some<T, Width>*>(dx + first + 32 * Width * j) = result[j];
  }
}

// One block per 32 columns of a part of the rows, as column_sums_kernel. biases: may be null.
template <class T>
__global__ void norm_parameters_kernel(bool rms, const T* dy, const T* x, const float* mean,
                                       const float* inverse, float* weights, float* biases, std::int64_t rows,
                                       std::int64_t columns, std::int64_t rows_of_part) {
  __shared__ float weight[8][33];
  __shared__ float bias[8][33];
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * 32 + threadIdx.x;
  const std::int64_t first = blockIdx.y * rows_of_part;
  const std::int64_t end = first + rows_of_part < rows ? first + rows_of_part : rows;
  float dw = 0;
  float db = 0;
  if (column < columns) {
    for (std::int64_t row = first + threadIdx.y; row < end; row += 8) {
      const float g = wide(dy[row * columns + column]);
      dw += g * (wide(x[row * columns + column]) - (rms ? 0 : mean[row])) * inverse[row];
      db += g;
    }
  }
  weight[threadIdx.y][threadIdx.x] = dw;
  bias[threadIdx.y][threadIdx.x] = db;
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
  for (int i = 1; i < 8; ++i) {
    dw += weight[i][threadIdx.x];
    db += bias[i][threadIdx.x];
  }
  weights[blockIdx.y * columns + column] = dw;
  if (biases) biases[blockIdx.y * columns + column] = db;
}

// A block's row: calls f(i, row[i]) for i < count, a piece at a time where `by_pieces`; with Writes row[i]
// becomes what it returns.
template <bool Writes, class T, class F>
__device__ void for_row(T* row, std::int64_t count, bool by_pieces, F f) {
  const auto visit = [&](T& element, std::int64_t i, T value) {
    if constexpr (Writes)
      put(element, f(i, wide(value)));
    else
      f(i, wide(value));
  };
  const std::int64_t pieces = by_pieces ? count / kPiece<T> : 0;
  for (std::int64_t i = threadIdx.x; i < pieces; i += kThreads) {
    Piece<T> piece = reinterpret_cast<const Piece<T>*>(row)[i];
    for (int c = 0; c < kPiece<T>; ++c) visit(piece.x[c], kPiece<T> * i + c, piece.x[c]);
    if constexpr (Writes) reinterpret_cast<Piece<T>*>(row)[i] = piece;
  }
  for (std::int64_t i = kPiece<T> * pieces + threadIdx.x; i < count; i += kThreads) visit(row[i], i, row[i]);
}

template <class T>
__global__ void loss_max_kernel(const T* logits, float* maximum, std::int64_t columns, std::int64_t stride,
                                bool by_pieces) {
  T* row = const_cast<T*>(logits) + static_cast<std::int64_t>(blockIdx.x) * stride;
  float value = -FLT_MAX;
  for_row<false>(row, columns, by_pieces, [&](std::int64_t, float logit) { value = fmaxf(value, logit); });
  value = reduce_block<true>(value);
  if (threadIdx.x == 0) maximum[blockIdx.x] = value;
}

template <class T>
__global__ void loss_sum_kernel(const T* logits, const float* maximum, const std::int32_t* targets,
                                float* sums, std::int64_t columns, std::int64_t stride, std::int32_t first,
                                bool by_pieces) {
  T* row = const_cast<T*>(logits) + static_cast<std::int64_t>(blockIdx.x) * stride;
  const float top = maximum[blockIdx.x];
  float sum = 0;
  for_row<false>(row, columns, by_pieces, [&](std::int64_t, float logit) { sum += expf(logit - top); });
  sum = reduce_block<false>(sum);
  if (threadIdx.x != 0) return;
  const std::int64_t target = static_cast<std::int64_t>(targets[blockIdx.x]) - first;
  sums[2 * blockIdx.x] = sum;
  sums[2 * blockIdx.x + 1] = target >= 0 && target < columns ? wide(row[target]) - top : 0;
}

template <class T>
__global__ void loss_gradient_kernel(T* logits, const float* maximum, const float* sums,
                                     const std::int32_t* targets, float scale, std::int64_t columns,
                                     std::int64_t stride, std::int32_t first, double* loss, bool by_pieces) {
  T* row = logits + static_cast<std::int64_t>(blockIdx.x) * stride;
  if (targets[blockIdx.x] < 0) {
    for (std::int64_t i = threadIdx.x; i < stride; i += kThreads) put(row[i], 0);
    return;
  }
  const float top = maximum[blockIdx.x];
  const float sum = sums[2 * blockIdx.x];
  const float share = scale / sum;
  const std::int64_t target = static_cast<std::int64_t>(targets[blockIdx.x]) - first;
  for_row<true>(row, stride, by_pieces, [&](std::int64_t i, float logit) {
    return i < columns ? share * expf(logit - top) - (i == target ? scale : 0.0F) : 0;
  });
  if (threadIdx.x == 0) atomicAdd(loss, log(static_cast<double>(sum)) - sums[2 * blockIdx.x + 1]);
}

// Whether lanes take neighbours at once. Of fp32 words they take one each.
template <class T>
constexpr int kWidth = sizeof(T) == 2 ? kPiece<T> : 1;
template <class T, class... Pointers>
bool takes_neighbours(std::int64_t columns, const Pointers*... rows) {
  return kWidth<T> > 1 && (aligned_rows(rows, columns) && ...);
}

unsigned norm_blocks(std::int64_t rows) {
  return static_cast<unsigned>((rows + kNormWarps - 1) / kNormWarps);
}

}  // namespace

template <class T>
void Rowwise<T>::norm_forward(bool rms, const T* x, const float* weight, const float* bias, T* y, float* mean,
                              float* inverse, std::int64_t rows, std::int64_t columns, float epsilon,
                              cudaStream_t stream) {
  if (rows == 0) return;
  const auto kernel =
      takes_neighbours<T>(columns, x, y) ? norm_forward_kernel<kWidth<T>, T> : norm_forward_kernel<1, T>;
  launch(kernel, norm_blocks(rows), 32 * kNormWarps, 0, stream, rms, x, weight, bias, y, mean, inverse, rows,
         columns, epsilon);
}

template <class T>
void Rowwise<T>::norm_backward(bool rms, const T* dy, const T* x, const float* weight, const float* mean,
                               const float* inverse, T* dx, bool accumulate, float* dweight, float* dbias,
                               float* scratch, std::int64_t rows, std::int64_t columns, cudaStream_t stream) {
  if (rows == 0) return;
  const auto kernel = takes_neighbours<T>(columns, dy, x, dx) ? norm_backward_kernel<kWidth<T>, T>
                                                              : norm_backward_kernel<1, T>;
  launch(kernel, norm_blocks(rows), 32 * kNormWarps, 0, stream, rms, dy, x, weight, mean, inverse, dx,
         accumulate, rows, columns);
  const std::int64_t parts = row_parts(rows);
  float* biases = dbias == nullptr ? nullptr : scratch + parts * columns;
  launch(norm_parameters_kernel<T>,
         dim3(static_cast<unsigned>((columns + 31) / 32), static_cast<unsigned>(parts)), dim3(32, 8), 0,
         stream, rms, dy, x, mean, inverse, scratch, biases, rows, columns, (rows + parts - 1) / parts);
  add_parts(scratch, dweight, parts, columns, stream);
  if (dbias != nullptr) add_parts(biases, dbias, parts, columns, stream);
}

template <class T>
void Rowwise<T>::loss_max(const T* logits, float* maximum, std::int64_t rows, std::int64_t columns,
                          std::int64_t stride, cudaStream_t stream) {
  if (rows == 0) return;
  launch(loss_max_kernel<T>, static_cast<unsigned>(rows), kThreads, 0, stream, logits, maximum, columns,
         stride, aligned_rows(logits, stride));
}

template <class T>
void Rowwise<T>::loss_sum(const T* logits, const float* maximum, const std::int32_t* targets, float* sums,
                          std::int64_t rows, std::int64_t columns, std::int64_t stride, std::int32_t first,
                          cudaStream_t stream) {
  if (rows == 0) return;
  launch(loss_sum_kernel<T>, static_cast<unsigned>(rows), kThreads, 0, stream, logits, maximum, targets, sums,
         columns, stride, first, aligned_rows(logits, stride));
}

template <class T>
void Rowwise<T>::loss_gradient(T* logits, const float* maximum, const float* sums,
                               const std::int32_t* targets, float scale, std::int64_t rows,
                               std::int64_t columns, std::int64_t stride, std::int32_t first, double* loss,
                               cudaStream_t stream) {
  if (rows == 0) return;
  launch(loss_gradient_kernel<T>, static_cast<unsigned>(rows), kThreads, 0, stream, logits, maximum, sums,
         targets, scale, columns, stride, first, loss, aligned_rows(logits, stride));
}

template struct Rowwise<float>;
template struct Rowwise<Bf16>;
template struct Rowwise<Fp16>;

}  // namespace orrery::exec::kernels
