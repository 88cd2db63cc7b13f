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
// it, so that the memory has enough to do.
constexpr int kNormWarps = 8;
constexpr int kAtOnce = 4;

__global__ void norm_forward_kernel(bool rms, const float* x, const float* weight, const float* bias,
                                    float* y, float* mean, float* inverse, std::int64_t rows,
                                    std::int64_t columns, float epsilon) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kNormWarps + threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  if (row >= rows) return;
  x += row * columns;
  y += row * columns;
  float sum = 0;
  if (!rms) {
    for (std::int64_t i = lane; i < columns; i += 32) sum += x[i];
    sum = warp_sum(sum) / static_cast<float>(columns);
  }
  float squares = 0;
  for (std::int64_t i = lane; i < columns; i += 32) squares += (x[i] - sum) * (x[i] - sum);
  squares = warp_sum(squares) / static_cast<float>(columns);
  const float scale = rsqrtf(squares + epsilon);
  for (std::int64_t first = lane; first < columns; first += 32 * kAtOnce) {
    float value[kAtOnce] = {};
    for (int j = 0; j < kAtOnce; ++j) {
      const std::int64_t i = first + 32 * j;
      if (i < columns) value[j] = (x[i] - sum) * scale * weight[i] + (bias ? bias[i] : 0);
    }
    for (int j = 0; j < kAtOnce; ++j)
      if (first + 32 * j < columns) y[first + 32 * j] = value[j];
  }
  if (lane == 0) {
    if (!rms) mean[row] = sum;
    inverse[row] = scale;
  }
}

// dx (+)= inverse * (w*dy - mean(w*dy) - xhat * mean(w*dy * xhat)); RMS norm has no mean term.
__global__ void norm_backward_kernel(bool rms, const float* dy, const float* x, const float* weight,
                                     const float* mean, const float* inverse, float* dx, bool accumulate,
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
  for (std::int64_t i = lane; i < columns; i += 32) {
    const float g = dy[i] * weight[i];
    sum += g;
    dot += g * (x[i] - center) * scale;
  }
  sum = rms ? 0 : warp_sum(sum) / static_cast<float>(columns);
  dot = warp_sum(dot) / static_cast<float>(columns);
  for (std::int64_t first = lane; first < columns; first += 32 * kAtOnce) {
    float value[kAtOnce] = {};
    for (int j = 0; j < kAtOnce; ++j) {
      const std::int64_t i = first + 32 * j;
      if (i < columns)
        value[j] =
            (accumulate ? dx[i] : 0) + scale * (dy[i] * weight[i] - sum - (x[i] - center) * scale * dot);
    }
    for (int j = 0; j < kAtOnce; ++j)
      if (first + 32 * j < columns) dx[first + 32 * j] = value[j];
  }
}

// One block per 32 columns of a part of the rows, as column_sums_kernel. biases: may be null.
__global__ void norm_parameters_kernel(bool rms, const float* dy, const float* x, const float* mean,
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
      const float g = dy[row * columns + column];
      dw += g * (x[row * columns + column] - (rms ? 0 : mean[row])) * inverse[row];
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

// A block's row[i] becomes f(i, row[i]) for i < count.
template <class F>
__device__ void for_row(float* row, std::int64_t count, bool by_fours, F f) {
  const std::int64_t fours = by_fours ? count / 4 : 0;
  for (std::int64_t i = threadIdx.x; i < fours; i += kThreads) {
    Four four = reinterpret_cast<Four*>(row)[i];
    for (int c = 0; c < 4; ++c) four.x[c] = f(4 * i + c, four.x[c]);
    reinterpret_cast<Four*>(row)[i] = four;
  }
  for (std::int64_t i = 4 * fours + threadIdx.x; i < count; i += kThreads) row[i] = f(i, row[i]);
}

__global__ void loss_max_kernel(const float* logits, float* maximum, std::int64_t columns,
                                std::int64_t stride) {
  const float* row = logits + static_cast<std::int64_t>(blockIdx.x) * stride;
  float value = -FLT_MAX;
  for (std::int64_t i = threadIdx.x; i < columns; i += kThreads) value = fmaxf(value, row[i]);
  value = reduce_block<true>(value);
  if (threadIdx.x == 0) maximum[blockIdx.x] = value;
}

__global__ void loss_sum_kernel(float* logits, const float* maximum, const std::int32_t* targets, float* sums,
                                std::int64_t columns, std::int64_t stride, std::int32_t first) {
  float* row = logits + static_cast<std::int64_t>(blockIdx.x) * stride;
  const float top = maximum[blockIdx.x];
  const std::int64_t target = static_cast<std::int64_t>(targets[blockIdx.x]) - first;
  const bool here = target >= 0 && target < columns;
  // Read before any thread overwrites it; reduce_block's barrier keeps the order.
  const float logit = threadIdx.x == 0 && here ? row[target] - top : 0;
  __syncthreads();
  float sum = 0;
  for_row(row, columns, stride % 4 == 0 && aligned(logits), [&](std::int64_t, float value) {
    const float e = expf(value - top);
    sum += e;
    return e;
  });
  sum = reduce_block<false>(sum);
  if (threadIdx.x != 0) return;
  sums[2 * blockIdx.x] = sum;
  sums[2 * blockIdx.x + 1] = logit;
}

__global__ void loss_gradient_kernel(float* logits, const float* sums, const std::int32_t* targets,
                                     float scale, std::int64_t columns, std::int64_t stride,
                                     std::int32_t first, double* loss) {
  float* row = logits + static_cast<std::int64_t>(blockIdx.x) * stride;
  if (targets[blockIdx.x] < 0) {
    for (std::int64_t i = threadIdx.x; i < stride; i += kThreads) row[i] = 0;
    return;
  }
  const float sum = sums[2 * blockIdx.x];
  const float share = scale / sum;
  const std::int64_t target = static_cast<std::int64_t>(targets[blockIdx.x]) - first;
  for_row(row, stride, stride % 4 == 0 && aligned(logits), [&](std::int64_t i, float e) {
    return i < columns ? share * e - (i == target ? scale : 0.0F) : 0;
  });
  if (threadIdx.x == 0) atomicAdd(loss, log(static_cast<double>(sum)) - sums[2 * blockIdx.x + 1]);
}

}  // namespace

void norm_forward(bool rms, const float* x, const float* weight, const float* bias, float* y, float* mean,
                  float* inverse, std::int64_t rows, std::int64_t columns, float epsilon,
                  cudaStream_t stream) {
  if (rows == 0) return;
  launch(norm_forward_kernel, static_cast<unsigned>((rows + kNormWarps - 1) / kNormWarps), 32 * kNormWarps, 0,
         stream, rms, x, weight, bias, y, mean, inverse, rows, columns, epsilon);
}

void norm_backward(bool rms, const float* dy, const float* x, const float* weight, const float* mean,
                   const float* inverse, float* dx, bool accumulate, float* dweight, float* dbias,
                   float* scratch, std::int64_t rows, std::int64_t columns, cudaStream_t stream) {
  if (rows == 0) return;
  launch(norm_backward_kernel, static_cast<unsigned>((rows + kNormWarps - 1) / kNormWarps), 32 * kNormWarps,
         0, stream, rms, dy, x, weight, mean, inverse, dx, accumulate, rows, columns);
  const std::int64_t parts = row_parts(rows);
  float* biases = dbias == nullptr ? nullptr : scratch + parts * columns;
  launch(norm_parameters_kernel,
         dim3(static_cast<unsigned>((columns + 31) / 32), static_cast<unsigned>(parts)), dim3(32, 8), 0,
         stream, rms, dy, x, mean, inverse, scratch, biases, rows, columns, (rows + parts - 1) / parts);
  add_parts(scratch, dweight, parts, columns, stream);
  if (dbias != nullptr) add_parts(biases, dbias, parts, columns, stream);
}

void loss_max(const float* logits, float* maximum, std::int64_t rows, std::int64_t columns,
              std::int64_t stride, cudaStream_t stream) {
  if (rows == 0) return;
  launch(loss_max_kernel, static_cast<unsigned>(rows), kThreads, 0, stream, logits, maximum, columns, stride);
}

void loss_sum(float* logits, const float* maximum, const std::int32_t* targets, float* sums,
              std::int64_t rows, std::int64_t columns, std::int64_t stride, std::int32_t first,
              cudaStream_t stream) {
  if (rows == 0) return;
  launch(loss_sum_kernel, static_cast<unsigned>(rows), kThreads, 0, stream, logits, maximum, targets, sums,
         columns, stride, first);
}

void loss_gradient(float* logits, const float* sums, const std::int32_t* targets, float scale,
                   std::int64_t rows, std::int64_t columns, std::int64_t stride, std::int32_t first,
                   double* loss, cudaStream_t stream) {
  if (rows == 0) return;
  launch(loss_gradient_kernel, static_cast<unsigned>(rows), kThreads, 0, stream, logits, sums, targets, scale,
         columns, stride, first, loss);
}

}  // namespace orrery::exec::kernels
