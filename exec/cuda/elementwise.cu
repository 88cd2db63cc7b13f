// Element-wise kernels, reductions and optimizers.
#include "exec/cuda/block_reduce.h"
#include "exec/cuda/each.h"
#include "exec/cuda/kernels.h"
#include "exec/cuda/launch.h"

namespace orrery::exec::kernels {
namespace {

__global__ void sum_of_squares_kernel(const float* data, std::size_t count, double* result) {
  double sum = 0;
  for (std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x; i < count;
       i += static_cast<std::size_t>(gridDim.x) * blockDim.x)
    sum += static_cast<double>(data[i]) * data[i];
  sum = warp_sum(sum);
  if (threadIdx.x % 32 == 0) atomicAdd(result, sum);
}

constexpr int kTransposed = 32;  // rows and columns of a tile

unsigned blocks_of(std::int64_t count) {
  constexpr std::int64_t kMost = 1 << 20;
  return static_cast<unsigned>(count < kMost ? count : kMost);
}

// Tile by tile through shared memory, so that both sides are read and written along their rows.
template <class T>
__global__ void transpose_kernel(const T* from, std::int64_t from_stride, T* to, std::int64_t to_stride,
                                 std::int64_t tiles, std::int64_t rows, std::int64_t columns, Cells across,
                                 Cells matrix) {
  __shared__ T tile[kTransposed][kTransposed + 1];
  for (std::int64_t index = blockIdx.x; index < tiles; index += gridDim.x) {
    const std::int64_t m = matrix.row(static_cast<std::size_t>(index));
    const std::int64_t within = matrix.column(static_cast<std::size_t>(index), m);
    const std::int64_t row0 = across.row(static_cast<std::size_t>(within)) * kTransposed;
    const std::int64_t column0 = across.column(static_cast<std::size_t>(within)) * kTransposed;
    const int x = threadIdx.x;
    for (int y = threadIdx.y; y < kTransposed; y += 8)
      if (row0 + y < rows && column0 + x < columns)
        tile[y][x] = from[m * from_stride + (row0 + y) * columns + column0 + x];
    __syncthreads();
    for (int y = threadIdx.y; y < kTransposed; y += 8)
      if (column0 + y < columns && row0 + x < rows)
        to[m * to_stride + (column0 + y) * rows + row0 + x] = tile[x][y];
    __syncthreads();
  }
}

// One block per 32 columns of a part of the rows; 8 row lanes each sum a stride of them, then meet in shared
// memory.
template <class T>
__global__ void column_sums_kernel(const T* gradient, float* sums, std::int64_t rows, std::int64_t columns,
                                   std::int64_t stride, std::int64_t rows_of_part) {
  __shared__ float part[8][33];
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * 32 + threadIdx.x;
  const std::int64_t first = blockIdx.y * rows_of_part;
  const std::int64_t end = first + rows_of_part < rows ? first + rows_of_part : rows;
  float sum = 0;
  if (column < columns)
    for (std::int64_t row = first + threadIdx.y; row < end; row += 8)
      sum += wide(gradient[row * stride + column]);
  part[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
  for (int i = 1; i < 8; ++i) sum += part[i][threadIdx.x];
  sums[blockIdx.y * columns + column] = sum;
}

constexpr float kGeluScale = 0.7978845608028654F;  // sqrt(2 / pi): GPT-2's tanh approximation
constexpr float kGeluCubic = 0.044715F;
constexpr float kHalfRoot = 0.7071067811865476F;  // sqrt(1 / 2)
constexpr float kNormal = 0.3989422804014327F;    // 1 / sqrt(2 pi)

__device__ float apply(Unary kind, float x) {
  switch (kind) {
    case Unary::gelu:
      return 0.5F * x * (1.0F + tanhf(kGeluScale * (x + kGeluCubic * x * x * x)));
    case Unary::gelu_erf:
      return 0.5F * x * (1.0F + erff(x * kHalfRoot));
    case Unary::silu:
      return x / (1.0F + expf(-x));
    case Unary::relu:
      return x > 0 ? x : 0;
  }
  return 0;
}

__device__ float derivative(Unary kind, float x) {
  switch (kind) {
    case Unary::gelu: {
      const float t = tanhf(kGeluScale * (x + kGeluCubic * x * x * x));
      return 0.5F * (1.0F + t) + 0.5F * x * (1.0F - t * t) * kGeluScale * (1.0F + 3.0F * kGeluCubic * x * x);
    }
    case Unary::gelu_erf:
      return 0.5F * (1.0F + erff(x * kHalfRoot)) + x * kNormal * expf(-0.5F * x * x);
    case Unary::silu: {
      const float s = 1.0F / (1.0F + expf(-x));
      return s * (1.0F + x * (1.0F - s));
    }
    case Unary::relu:
      return x > 0 ? 1 : 0;
  }
  return 0;
}

// `count` times `Count` outputs; gates and what they multiply lie side by side in rows of twice `columns`.
template <class T, int Count>
__global__ void gated_forward_kernel(std::size_t count, Unary kind, const T* x, T* y, std::int64_t columns,
                                     Cells cells) {
  for (std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x; i < count;
       i += static_cast<std::size_t>(gridDim.x) * blockDim.x) {
    const std::int64_t row = cells.row(i);
    const T* at = x + row * 2 * columns + Count * cells.column(i, row);
    const Some<T, Count> gate = *reinterpret_cast<const Some<T, Count>*>(at);
    const Some<T, Count> up = *reinterpret_cast<const Some<T, Count>*>(at + columns);
    Some<T, Count> result;
    for (int c = 0; c < Count; ++c) put(result.x[c], apply(kind, wide(gate.x[c])) * wide(up.x[c]));
    reinterpret_cast<Some<T, Count>*>(y)[i] = result;
  }
}

template <class T, int Count>
__global__ void gated_backward_kernel(std::size_t count, Unary kind, const T* x, const T* dy, T* dx,
                                      std::int64_t columns, Cells cells) {
  for (std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x; i < count;
       i += static_cast<std::size_t>(gridDim.x) * blockDim.x) {
    const std::int64_t row = cells.row(i);
    const std::int64_t at = row * 2 * columns + Count * cells.column(i, row);
    const Some<T, Count> upstream = reinterpret_cast<const Some<T, Count>*>(dy)[i];
    const Some<T, Count> gate = *reinterpret_cast<const Some<T, Count>*>(x + at);
    const Some<T, Count> up = *reinterpret_cast<const Some<T, Count>*>(x + at + columns);
    Some<T, Count> of_gate;
    Some<T, Count> of_up;
    for (int c = 0; c < Count; ++c) {
      put(of_gate.x[c], wide(upstream.x[c]) * wide(up.x[c]) * derivative(kind, wide(gate.x[c])));
      put(of_up.x[c], wide(upstream.x[c]) * apply(kind, wide(gate.x[c])));
    }
    *reinterpret_cast<Some<T, Count>*>(dx + at) = of_gate;
    *reinterpret_cast<Some<T, Count>*>(dx + at + columns) = of_up;
  }
}

// A dropout as a kernel takes it.
struct Fates {
  const std::uint64_t* rows;
  std::uint64_t place;
  std::uint32_t threshold;
  float scale;
  std::uint32_t first;

  __device__ float factor(std::int64_t row, std::int64_t column) const {
    const std::uint64_t key = rows[row];
    if (key == kKeepsAll) return 1;
    return dropout_bits(key ^ place, first + static_cast<std::uint32_t>(column)) >= threshold ? scale : 0;
  }
};

Fates fates_of(const Dropout& of) {
  return {of.rows, of.place, dropout_threshold(of.rate), dropout_scale(of.rate), of.first_column};
}

// How many neighbours a gated activation can work on at once.
template <class T>
bool gates_by_pieces(std::int64_t columns, const T* x, const T* y) {
  return columns % kPiece<T> == 0 && aligned(x) && aligned(y);
}

}  // namespace

template <class T>
void Elementwise<T>::fill(T* data, std::size_t count, float value, cudaStream_t stream) {
  map(count, stream, data, [=] __device__(std::size_t) { return value; });
}

template <class T>
void Elementwise<T>::add(T* into, const T* from, std::size_t count, cudaStream_t stream) {
  map(
      count, stream, into, [=] __device__(std::size_t, float a, float b) { return a + b; }, into, from);
}

template <class T>
void Elementwise<T>::scale(T* data, std::size_t count, float factor, cudaStream_t stream) {
  map(
      count, stream, data, [=] __device__(std::size_t, float x) { return x * factor; }, data);
}

template <class T>
void Elementwise<T>::multiply(T* into, const T* by, std::size_t count, cudaStream_t stream) {
  map(
      count, stream, into, [=] __device__(std::size_t, float a, float b) { return a * b; }, into, by);
}

template <class T>
void Elementwise<T>::softcap(float cap, T* x, T* slopes, std::size_t count, cudaStream_t stream) {
  each(count, stream, [=] __device__(std::size_t i) {
    const float t = tanhf(wide(x[i]) / cap);
    put(x[i], cap * t);
    put(slopes[i], 1 - t * t);
  });
}

template <class T>
void Elementwise<T>::transpose(const T* from, std::int64_t from_stride, T* to, std::int64_t to_stride,
                               std::int64_t batch, std::int64_t rows, std::int64_t columns,
                               cudaStream_t stream) {
  if (batch * rows * columns == 0) return;
  const auto tiles = [](std::int64_t side) { return (side + kTransposed - 1) / kTransposed; };
  const Cells across(tiles(columns));
  const Cells matrix(tiles(rows) * tiles(columns));
  launch(transpose_kernel<T>, blocks_of(batch * tiles(rows) * tiles(columns)), dim3(kTransposed, 8), 0,
         stream, from, from_stride, to, to_stride, batch * tiles(rows) * tiles(columns), rows, columns,
         across, matrix);
}

template <class T>
void Elementwise<T>::scale_matrix(T* data, std::int64_t rows, std::int64_t columns, std::int64_t stride,
                                  float factor, cudaStream_t stream) {
  const Cells cells(columns);
  each(static_cast<std::size_t>(rows * columns), stream, [=] __device__(std::size_t i) {
    const std::int64_t row = cells.row(i);
    T& element = data[row * stride + cells.column(i, row)];
    put(element, factor == 0 ? 0 : factor * wide(element));
  });
}

template <class T>
void Elementwise<T>::add_bias(T* data, const float* bias, std::int64_t rows, std::int64_t columns,
                              std::int64_t stride, cudaStream_t stream) {
  const Cells cells(columns);
  if (stride == columns)
    return map(
        static_cast<std::size_t>(rows * columns), stream, data,
        [=] __device__(std::size_t i, float x) { return x + bias[cells.column(i)]; }, data);
  each(static_cast<std::size_t>(rows * columns), stream, [=] __device__(std::size_t i) {
    const std::int64_t row = cells.row(i);
    const std::int64_t column = cells.column(i, row);
    T& element = data[row * stride + column];
    put(element, wide(element) + bias[column]);
  });
}

template <class T>
void Elementwise<T>::bias_gradient(const T* gradient, float* out, std::int64_t rows, std::int64_t columns,
                                   std::int64_t stride, float* scratch, cudaStream_t stream) {
  if (rows == 0 || columns == 0) return;
  const std::int64_t parts = row_parts(rows);
  launch(column_sums_kernel<T>,
         dim3(static_cast<unsigned>((columns + 31) / 32), static_cast<unsigned>(parts)), dim3(32, 8), 0,
         stream, gradient, scratch, rows, columns, stride, (rows + parts - 1) / parts);
  add_parts(scratch, out, parts, columns, stream);
}

template <class T>
void Elementwise<T>::residual_forward(const T* branch, const float* bias, const T* residual, T* out,
                                      std::int64_t rows, std::int64_t columns, cudaStream_t stream) {
  const Cells cells(columns);
  map(
      static_cast<std::size_t>(rows * columns), stream, out,
      [=] __device__(std::size_t i, float added, float stays) {
        return added + (bias ? bias[cells.column(i)] : 0) + stays;
      },
      branch, residual);
}

template <class T>
void Elementwise<T>::dropout(const Dropout& of, const T* x, T* y, std::int64_t rows, std::int64_t columns,
                             cudaStream_t stream) {
  const Fates fates = fates_of(of);
  const Cells cells(columns);
  map(
      static_cast<std::size_t>(rows * columns), stream, y,
      [=] __device__(std::size_t i, float value) {
        const std::int64_t row = cells.row(i);
        const float factor = fates.factor(row, cells.column(i, row));
        return factor == 0 ? 0 : factor * value;
      },
      x);
}

template <class T>
void Elementwise<T>::dropout_residual(const Dropout& of, const T* branch, const float* bias,
                                      const T* residual, T* out, std::int64_t rows, std::int64_t columns,
                                      cudaStream_t stream) {
  const Fates fates = fates_of(of);
  const Cells cells(columns);
  map(
      static_cast<std::size_t>(rows * columns), stream, out,
      [=] __device__(std::size_t i, float added, float stays) {
        const std::int64_t row = cells.row(i);
        const std::int64_t column = cells.column(i, row);
        return (added + (bias ? bias[column] : 0)) * fates.factor(row, column) + stays;
      },
      branch, residual);
}

template <class T>
void Elementwise<T>::activation_forward(Unary kind, bool gated, const T* x, T* y, std::int64_t rows,
                                        std::int64_t columns, cudaStream_t stream) {
  const auto count = static_cast<std::size_t>(rows * columns);
  if (count == 0) return;
  if (!gated) {
    map(
        count, stream, y, [=] __device__(std::size_t, float value) { return apply(kind, value); }, x);
  } else if (gates_by_pieces(columns, x, y)) {
    launch(gated_forward_kernel<T, kPiece<T>>, blocks_for(count / kPiece<T>), kEachThreads, 0, stream,
           count / kPiece<T>, kind, x, y, columns, Cells(columns / kPiece<T>));
  } else {
    launch(gated_forward_kernel<T, 1>, blocks_for(count), kEachThreads, 0, stream, count, kind, x, y, columns,
           Cells(columns));
  }
}

template <class T>
void Elementwise<T>::activation_backward(Unary kind, bool gated, const T* x, const T* dy, T* dx,
                                         std::int64_t rows, std::int64_t columns, cudaStream_t stream) {
  const auto count = static_cast<std::size_t>(rows * columns);
  if (count == 0) return;
  if (!gated) {
    map(
        count, stream, dx,
        [=] __device__(std::size_t, float value, float upstream) {
          return upstream * derivative(kind, value);
        },
        x, dy);
  } else if (gates_by_pieces(columns, x, dx) && aligned(dy)) {
    launch(gated_backward_kernel<T, kPiece<T>>, blocks_for(count / kPiece<T>), kEachThreads, 0, stream,
           count / kPiece<T>, kind, x, dy, dx, columns, Cells(columns / kPiece<T>));
  } else {
    launch(gated_backward_kernel<T, 1>, blocks_for(count), kEachThreads, 0, stream, count, kind, x, dy, dx,
           columns, Cells(columns));
  }
}

template <class T>
void Elementwise<T>::embedding_forward(const std::int32_t* tokens, const float* table, T* out,
                                       std::int64_t rows, std::int64_t columns, std::int32_t first,
                                       std::int32_t count, cudaStream_t stream) {
  const Cells cells(columns);
  map(static_cast<std::size_t>(rows * columns), stream, out, [=] __device__(std::size_t i) {
    const std::int64_t row = cells.row(i);
    const std::int64_t column = cells.column(i, row);
    const std::int32_t token = tokens[row] - first;
    return token >= 0 && token < count ? table[token * columns + column] : 0;
  });
}

template <class T>
void Elementwise<T>::embedding_backward(const std::int32_t* tokens, const T* dout, float* dtable,
                                        std::int64_t rows, std::int64_t columns, std::int32_t first,
                                        std::int32_t count, cudaStream_t stream) {
  const Cells cells(columns);
  each(static_cast<std::size_t>(rows * columns), stream, [=] __device__(std::size_t i) {
    const std::int64_t row = cells.row(i);
    const std::int64_t column = cells.column(i, row);
    const std::int32_t token = tokens[row] - first;
    if (token >= 0 && token < count) atomicAdd(dtable + token * columns + column, wide(dout[i]));
  });
}

template <class T>
void Elementwise<T>::positions_forward(const float* table, T* out, std::int64_t rows, std::int64_t columns,
                                       int seq, cudaStream_t stream) {
  const Cells cells(seq * columns);
  map(
      static_cast<std::size_t>(rows * columns), stream, out,
      // The table's own rows, one after another.
      [=] __device__(std::size_t i, float x) { return x + table[cells.column(i)]; }, out);
}

template <class T>
void Elementwise<T>::positions_backward(const T* dout, float* dtable, std::int64_t rows, std::int64_t columns,
                                        int seq, cudaStream_t stream) {
  // One thread an element of the table sums over the samples: no atomics, the same result each time.
  const std::int64_t positions = rows < seq ? rows : seq;
  each(static_cast<std::size_t>(positions * columns), stream, [=] __device__(std::size_t i) {
    float sum = 0;
    for (std::int64_t at = static_cast<std::int64_t>(i); at < rows * columns; at += seq * columns)
      sum += wide(dout[at]);
    dtable[i] += sum;
  });
}

void sum_of_squares(const float* data, std::size_t count, double* result, cudaStream_t stream) {
  if (count == 0) return;
  launch(sum_of_squares_kernel, blocks_for(count) < 1024 ? blocks_for(count) : 1024, kEachThreads, 0, stream,
         data, count, result);
}

std::int64_t row_parts(std::int64_t rows) {
  const std::int64_t parts = rows / kRowsOfPart;
  return parts < 1 ? 1 : parts > kMostRowParts ? kMostRowParts : parts;
}

void add_parts(const float* parts, float* sums, std::int64_t count, std::int64_t columns,
               cudaStream_t stream) {
  each(static_cast<std::size_t>(columns), stream, [=] __device__(std::size_t i) {
    float sum = 0;
    for (std::int64_t part = 0; part < count; ++part)
      sum += parts[part * columns + static_cast<std::int64_t>(i)];
    sums[i] += sum;
  });
}

void sgd(float* weight, const float* gradient, std::size_t count, float rate, cudaStream_t stream) {
  each(count, stream, [=] __device__(std::size_t i) { weight[i] -= rate * gradient[i]; });
}

void momentum(float* weight, const float* gradient, float* velocity, std::size_t count, float rate,
              float factor, cudaStream_t stream) {
  each(count, stream, [=] __device__(std::size_t i) {
    velocity[i] = factor * velocity[i] + gradient[i];
    weight[i] -= rate * velocity[i];
  });
}

void adam(float* weight, const float* gradient, float* first, float* second, std::size_t count,
          const AdamConstants& constants, float correction1, float correction2, cudaStream_t stream) {
  const AdamConstants c = constants;
  each(count, stream, [=] __device__(std::size_t i) {
    const float g = gradient[i] + (c.decoupled ? 0 : c.weight_decay * weight[i]);
    const float m = first[i] = c.beta1 * first[i] + (1 - c.beta1) * g;
    const float v = second[i] = c.beta2 * second[i] + (1 - c.beta2) * g * g;
    const float decay = c.decoupled ? c.rate * c.weight_decay * weight[i] : 0;
    weight[i] -= c.rate * (m / correction1) / (sqrtf(v / correction2) + c.epsilon) + decay;
  });
}

template struct Elementwise<float>;
template struct Elementwise<Bf16>;
template struct Elementwise<Fp16>;

}  // namespace orrery::exec::kernels
