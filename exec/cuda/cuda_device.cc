#include "exec/cuda/cuda_device.h"

#include <fmt/format.h>

#include <cmath>

#include "base/error.h"
#include "exec/communicators/clock.h"
#include "exec/cuda/by_type.h"
#include "exec/cuda/check.h"
#include "exec/cuda/scratch.h"

namespace orrery::exec {
namespace {

kernels::Unary unary(Activation kind) {
  switch (kind) {
    case Activation::gelu:
      return kernels::Unary::gelu;
    case Activation::silu:
      return kernels::Unary::silu;
    case Activation::gelu_erf:
      return kernels::Unary::gelu_erf;
    case Activation::relu:
      return kernels::Unary::relu;
  }
  return kernels::Unary::gelu;
}

template <class... Any>
bool all_aligned(const Any&... numbers) {
  return ((reinterpret_cast<std::uintptr_t>(numbers.data()) % (kEven * sizeof(std::uint16_t)) == 0) && ...);
}

// One a query and head.
std::int64_t elements_of_statistics(const AttentionSize& size) {
  return static_cast<std::int64_t>(size.batch) * size.heads * size.seq;
}

}  // namespace

int cuda_devices() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    cudaGetLastError();  // no driver, or none of its devices: not an error of ours
    return 0;
  }
  return count;
}

CudaDevice::CudaDevice(int index, std::size_t columns_bytes) : index_(index), columns_bytes_(columns_bytes) {
  ORRERY_CUDA(cudaSetDevice(index));
  ORRERY_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  products_.emplace();
  void* scalar = nullptr;
  ORRERY_CUDA(cudaMalloc(&scalar, sizeof(double)));
  scalar_ = static_cast<double*>(scalar);
  ORRERY_CUDA(cudaMemset(scalar_, 0, sizeof(double)));
  cudaMemPool_t pool = nullptr;
  ORRERY_CUDA(cudaDeviceGetDefaultMemPool(&pool, index));
  ORRERY_CUDA(cudaEventCreate(&origin_));
  ORRERY_CUDA(cudaEventRecord(origin_, stream_));
  ORRERY_CUDA(cudaEventSynchronize(origin_));
  origin_s_ = steady_seconds();
  std::uint64_t keep = UINT64_MAX;  // a step releases and takes the same sizes again
  ORRERY_CUDA(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
}

CudaDevice::~CudaDevice() {
  cudaStreamSynchronize(stream_);
  for (cudaGraphExec_t recording : recordings_) cudaGraphExecDestroy(recording);
  products_.reset();
  for (cudaEvent_t event : marks_) cudaEventDestroy(event);
  cudaEventDestroy(origin_);
  cudaFree(scalar_);
  cudaStreamDestroy(stream_);
}

std::string CudaDevice::name() const {
  cudaDeviceProp properties{};
  ORRERY_CUDA(cudaGetDeviceProperties(&properties, index_));
  return properties.name;
}

void* CudaDevice::allocate(std::size_t bytes) {
  void* data = nullptr;
  const std::size_t rounded = bytes == 0 ? 1 : bytes;
  const cudaError_t code = cudaMallocAsync(&data, rounded, stream_);
  if (code == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // clear it: the process may go on
    throw NoAnswer(fmt::format("out of memory on {}: {} bytes asked for, {} in use", name(), bytes, live_));
  }
  ORRERY_CUDA(code);
  sizes_[data] = rounded;
  live_ += rounded;
  peak_ = std::max(peak_, live_);
  return data;
}

void CudaDevice::release(void* data) {
  if (!data) return;
  const auto found = sizes_.find(data);
  ORRERY_CHECK(found != sizes_.end(), "released memory that this device did not allocate");
  live_ -= found->second;
  sizes_.erase(found);
  ORRERY_CUDA(cudaFreeAsync(data, stream_));
}

void CudaDevice::copy_to_device(void* device, const void* host, std::size_t bytes) {
  ORRERY_CUDA(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream_));
  ORRERY_CUDA(cudaStreamSynchronize(stream_));  // the host buffer is the caller's again
}

void CudaDevice::copy_to_host(void* host, const void* device, std::size_t bytes) {
  ORRERY_CUDA(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream_));
  ORRERY_CUDA(cudaStreamSynchronize(stream_));
}

void CudaDevice::copy(void* to, const void* from, std::size_t bytes) {
  ORRERY_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_));
}

void CudaDevice::copy_matrix(Numbers to, std::int64_t to_stride, ConstNumbers from, std::int64_t from_stride,
                             std::int64_t rows, std::int64_t columns) {
  if (rows == 0 || columns == 0) return;
  ORRERY_CHECK(to.type() == from.type(), "a copy into another type");
  ORRERY_CUDA(cudaMemcpy2DAsync(to.data(), to.bytes(to_stride), from.data(), from.bytes(from_stride),
                                from.bytes(columns), static_cast<std::size_t>(rows), cudaMemcpyDeviceToDevice,
                                stream_));
}

void CudaDevice::transpose(ConstNumbers from, std::int64_t from_stride, Numbers to, std::int64_t to_stride,
                           std::int64_t batch, std::int64_t rows, std::int64_t columns) {
  by_type(from, [&](auto of) {
    of.elementwise.transpose(of(from), from_stride, of(to), to_stride, batch, rows, columns, stream_);
  });
}

Mark CudaDevice::mark() {
  if (marks_used_ == marks_.size()) {
    cudaEvent_t event = nullptr;
    ORRERY_CUDA(cudaEventCreate(&event));
    marks_.push_back(event);
  }
  ORRERY_CUDA(cudaEventRecord(marks_[marks_used_], stream_));
  return marks_used_++;
}

double CudaDevice::seconds_of(Mark mark) {
  ORRERY_CHECK(mark < marks_used_, "a mark of a step that was forgotten");
  ORRERY_CUDA(cudaEventSynchronize(marks_[mark]));
  float milliseconds = 0;
  ORRERY_CUDA(cudaEventElapsedTime(&milliseconds, origin_, marks_[mark]));
  return origin_s_ + static_cast<double>(milliseconds) * 1e-3;
}

void CudaDevice::release_marks() {
  marks_used_ = 0;
  // Elapsed times are floats: a new origin keeps microseconds resolved over long runs.
  ORRERY_CUDA(cudaEventRecord(origin_, stream_));
  ORRERY_CUDA(cudaEventSynchronize(origin_));
  origin_s_ = steady_seconds();
}

// Thread-local: what other streams of the process do in the meantime (NCCL's) is no matter.
void CudaDevice::begin_recording() {
  ORRERY_CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
}

Recording CudaDevice::end_recording() {
  cudaGraph_t graph = nullptr;
  ORRERY_CUDA(cudaStreamEndCapture(stream_, &graph));
  cudaGraphExec_t recording = nullptr;
  const cudaError_t code = cudaGraphInstantiate(&recording, graph, 0);
  cudaGraphDestroy(graph);
  ORRERY_CUDA(code);
  recordings_.push_back(recording);
  return recordings_.size() - 1;
}

void CudaDevice::replay(Recording recording) {
  ORRERY_CUDA(cudaGraphLaunch(recordings_.at(recording), stream_));
}

void CudaDevice::synchronize() {
  ORRERY_CUDA(cudaStreamSynchronize(stream_));
}

void CudaDevice::fill(Numbers data, std::size_t count, float value) {
  by_type(data, [&](auto of) { of.elementwise.fill(of(data), count, value, stream_); });
}

void CudaDevice::add(Numbers into, ConstNumbers from, std::size_t count) {
  by_type(into, [&](auto of) { of.elementwise.add(of(into), of(from), count, stream_); });
}

void CudaDevice::scale(Numbers data, std::size_t count, float factor) {
  by_type(data, [&](auto of) { of.elementwise.scale(of(data), count, factor, stream_); });
}

void CudaDevice::multiply(Numbers into, ConstNumbers by, std::size_t count) {
  by_type(into, [&](auto of) { of.elementwise.multiply(of(into), of(by), count, stream_); });
}

void CudaDevice::softcap(float cap, Numbers x, Numbers slopes, std::size_t count) {
  by_type(x, [&](auto of) { of.elementwise.softcap(cap, of(x), of(slopes), count, stream_); });
}

double CudaDevice::sum_of_squares(const float* data, std::size_t count) {
  ORRERY_CUDA(cudaMemsetAsync(scalar_, 0, sizeof(double), stream_));
  kernels::sum_of_squares(data, count, scalar_, stream_);
  double value = 0;
  copy_to_host(&value, scalar_, sizeof value);
  return value;
}

DType CudaDevice::product_type(ConstNumbers a, ConstNumbers b, ConstNumbers c) const {
  for (const ConstNumbers& numbers : {a, b, c})
    if (bytes_of(numbers.type()) == 2) return numbers.type();
  return product_type_;
}

CudaDevice::Operand CudaDevice::operand(DType type, ConstNumbers numbers, const Factor& shape,
                                        bool in_place) {
  Operand result{shape, nullptr};
  Factor& factor = result.factor;
  factor.data = numbers.data();
  if (bytes_of(type) != 2) return result;
  const bool even = shape.stride % kEven == 0 && all_aligned(numbers);
  if (in_place && even && numbers.type() == type) return result;
  ORRERY_CHECK(numbers.type() == type || numbers.type() == DType::fp32, "a product of unlike types");
  const std::int64_t rows = packed_stride(shape.rows);
  factor.stride = packed_stride(shape.columns);
  result.memory = allocate(static_cast<std::size_t>(rows * factor.stride) * sizeof(std::uint16_t));
  kernels::pack_matrix(type, numbers, shape.stride, static_cast<std::uint16_t*>(result.memory), factor.stride,
                       shape.rows, shape.columns, rows, stream_);
  factor.data = result.memory;
  return result;
}

// A result whose rows or columns are no multiple of eight takes cuBLASLt up to seven times as long (GPT-2's
// 50,257 tokens on an H200): what is beyond one is a product of its own. What is summed over is filled up
// with zeros, in packed factors.
template <class Multiply>
void CudaDevice::product(const Matrix& a, const Matrix& b, std::int64_t k, const Result& c,
                         Multiply multiply) {
  const DType type = product_type(a.numbers, b.numbers, Numbers(c.data, c.type));
  const bool narrow = bytes_of(type) == 2;
  const auto shape = [](const Matrix& matrix, std::int64_t rows, std::int64_t columns) {
    return matrix.transposed ? Factor{nullptr, true, columns, rows, matrix.stride}
                             : Factor{nullptr, false, rows, columns, matrix.stride};
  };
  const bool even_sum = k % kEven == 0;
  const Operand left = operand(type, a.numbers, shape(a, c.rows, k), even_sum);
  const Operand right = operand(type, b.numbers, shape(b, k, c.columns), even_sum);
  const std::int64_t sum = narrow ? packed_stride(k) : k;
  const std::size_t element = narrow ? sizeof(std::uint16_t) : sizeof(float);
  // Rows [first, first + count) of what stands on the left, or columns of what stands on the right.
  const auto part = [&](const Operand& whole, bool of_left, std::int64_t first, std::int64_t count) {
    Factor factor = whole.factor;
    const bool of_rows = of_left != factor.transposed;
    factor.rows = of_rows ? count : sum;
    factor.columns = of_rows ? sum : count;
    factor.data = static_cast<const std::byte*>(factor.data) +
                  static_cast<std::size_t>(of_rows ? first * factor.stride : first) * element;
    return factor;
  };
  const auto even = [&](std::int64_t size) {
    return narrow && size >= 8 * kEven ? size / kEven * kEven : size;
  };
  for (std::int64_t row = 0; row < c.rows;) {
    const std::int64_t rows = row == 0 ? even(c.rows) : c.rows - row;
    for (std::int64_t column = 0; column < c.columns;) {
      const std::int64_t columns = column == 0 ? even(c.columns) : c.columns - column;
      const Numbers first = Numbers(c.data, c.type) + (row * c.stride + column);
      multiply(type, part(left, true, row, rows), part(right, false, column, columns),
               Result{first.data(), c.type, rows, columns, c.stride}, column);
      column += columns;
    }
    row += rows;
  }
  release(left.memory);
  release(right.memory);
}

void CudaDevice::gemm(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k,
                      float alpha, ConstNumbers a, std::int64_t lda, ConstNumbers b, std::int64_t ldb,
                      float beta, Numbers c, std::int64_t ldc) {
  if (m == 0 || n == 0) return;
  if (k == 0)
    return by_type(c, [&](auto of) { of.elementwise.scale_matrix(of(c), m, n, ldc, beta, stream_); });
  product({a, transpose_a, lda}, {b, transpose_b, ldb}, k, {c.data(), c.type(), m, n, ldc},
          [&](DType type, const Factor& l, const Factor& r, const Result& piece, std::int64_t) {
            products_->multiply(type, l, r, piece, alpha, beta, 1, stream_);
          });
}

void CudaDevice::linear(bool out_by_in, std::int64_t rows, std::int64_t out, std::int64_t in, ConstNumbers x,
                        std::int64_t x_stride, ConstNumbers weight, const float* bias, Numbers y,
                        std::int64_t y_stride) {
  const std::int64_t weight_stride = out_by_in ? in : out;
  if (bias == nullptr || rows == 0 || out == 0 || in == 0) {
    gemm(false, out_by_in, rows, out, in, 1, x, x_stride, weight, weight_stride, 0, y, y_stride);
    if (bias != nullptr) add_bias(y, bias, rows, out, y_stride);
    return;
  }
  // The epilogue wants a bias of the result's type, whose values it has.
  const bool narrow_bias = bytes_of(y.type()) == 2;
  const Scratch copy(*this, narrow_bias ? y.bytes(out) : 0);
  if (narrow_bias)
    narrow(y.type(), bias, static_cast<std::uint16_t*>(copy.data()), static_cast<std::size_t>(out), 1, false);
  const ConstNumbers added = narrow_bias ? ConstNumbers(copy.data(), y.type()) : ConstNumbers(bias);
  product({x, false, x_stride}, {weight, out_by_in, weight_stride}, in,
          {y.data(), y.type(), rows, out, y_stride},
          [&](DType type, const Factor& l, const Factor& r, const Result& piece, std::int64_t column) {
            const ConstNumbers of_piece = added + column;
            if (!products_->multiply_and_add(type, l, r, of_piece.data(), piece, stream_))
              add_bias({piece.data, piece.type}, bias + column, piece.rows, piece.columns, y_stride);
          });
}

void CudaDevice::add_bias(Numbers data, const float* bias, std::int64_t rows, std::int64_t columns,
                          std::int64_t stride) {
  by_type(data, [&](auto of) { of.elementwise.add_bias(of(data), bias, rows, columns, stride, stream_); });
}

void CudaDevice::bias_gradient(ConstNumbers gradient, float* out, std::int64_t rows, std::int64_t columns,
                               std::int64_t stride) {
  const Scratch scratch(*this, kernels::row_parts(rows) * columns, sizeof(float));
  by_type(gradient, [&](auto of) {
    of.elementwise.bias_gradient(of(gradient), out, rows, columns, stride, scratch.floats(), stream_);
  });
}

void CudaDevice::residual_forward(ConstNumbers branch, const float* bias, ConstNumbers stream, Numbers out,
                                  std::int64_t rows, std::int64_t columns) {
  by_type(out, [&](auto of) {
    of.elementwise.residual_forward(of(branch), bias, of(stream), of(out), rows, columns, stream_);
  });
}

void CudaDevice::dropout(const Dropout& dropout, ConstNumbers x, Numbers y, std::int64_t rows,
                         std::int64_t columns) {
  by_type(y, [&](auto of) { of.elementwise.dropout(dropout, of(x), of(y), rows, columns, stream_); });
}

void CudaDevice::dropout_residual(const Dropout& dropout, ConstNumbers branch, const float* bias,
                                  ConstNumbers stream, Numbers out, std::int64_t rows, std::int64_t columns) {
  by_type(out, [&](auto of) {
    of.elementwise.dropout_residual(dropout, of(branch), bias, of(stream), of(out), rows, columns, stream_);
  });
}

void CudaDevice::norm_forward(NormKind kind, ConstNumbers x, const float* weight, const float* bias,
                              Numbers y, float* mean, float* inverse, std::int64_t rows, std::int64_t columns,
                              float epsilon) {
  by_type(y, [&](auto of) {
    of.rowwise.norm_forward(kind == NormKind::rms_norm, of(x), weight, bias, of(y), mean, inverse, rows,
                            columns, epsilon, stream_);
  });
}

void CudaDevice::norm_backward(NormKind kind, ConstNumbers dy, ConstNumbers x, const float* weight,
                               const float* mean, const float* inverse, Numbers dx, bool accumulate,
                               float* dweight, float* dbias, std::int64_t rows, std::int64_t columns) {
  const Scratch scratch(*this, 2 * kernels::row_parts(rows) * columns, sizeof(float));
  by_type(dx, [&](auto of) {
    of.rowwise.norm_backward(kind == NormKind::rms_norm, of(dy), of(x), weight, mean, inverse, of(dx),
                             accumulate, dweight, dbias, scratch.floats(), rows, columns, stream_);
  });
}

void CudaDevice::activation_forward(Activation kind, bool gated, ConstNumbers x, Numbers y, std::int64_t rows,
                                    std::int64_t columns) {
  by_type(y, [&](auto of) {
    of.elementwise.activation_forward(unary(kind), gated, of(x), of(y), rows, columns, stream_);
  });
}

void CudaDevice::activation_backward(Activation kind, bool gated, ConstNumbers x, ConstNumbers dy, Numbers dx,
                                     std::int64_t rows, std::int64_t columns) {
  by_type(dx, [&](auto of) {
    of.elementwise.activation_backward(unary(kind), gated, of(x), of(dy), of(dx), rows, columns, stream_);
  });
}

void CudaDevice::attention_forward(const AttentionSize& size, ConstNumbers qkv, Numbers out,
                                   float* statistics) {
  const Scratch scratch(*this, kernels::attention_scratch_bytes(qkv.type(), size, all_aligned(qkv), false));
  by_type(qkv, [&](auto of) {
    of.attention.forward(size, of(qkv), of(out), statistics, scratch.data(), stream_);
  });
}

void CudaDevice::attention_backward(const AttentionSize& size, ConstNumbers qkv, ConstNumbers out,
                                    ConstNumbers dout, const float* statistics, Numbers dqkv) {
  const Scratch delta(*this, elements_of_statistics(size), sizeof(float));
  const Scratch scratch(*this,
                        kernels::attention_scratch_bytes(qkv.type(), size, all_aligned(qkv, dout), true));
  by_type(qkv, [&](auto of) {
    of.attention.backward(size, of(qkv), of(out), of(dout), statistics, delta.floats(), of(dqkv),
                          scratch.data(), stream_);
  });
}

void CudaDevice::attention_block_forward(const AttentionBlock& block, ConstNumbers qkv, ConstNumbers keys,
                                         ConstNumbers values, Numbers out, float* statistics) {
  const Scratch scratch(
      *this, kernels::attention_scratch_bytes(qkv.type(), block.size, all_aligned(qkv, keys, values), false));
  by_type(qkv, [&](auto of) {
    of.attention.block_forward(block, of(qkv), of(keys), of(values), of(out), statistics, scratch.data(),
                               stream_);
  });
}

void CudaDevice::attention_block_backward(const AttentionBlock& block, ConstNumbers qkv, ConstNumbers keys,
                                          ConstNumbers values, ConstNumbers out, ConstNumbers dout,
                                          const float* statistics, Numbers dqkv, Numbers dkeys,
                                          Numbers dvalues) {
  const Scratch delta(*this, elements_of_statistics(block.size), sizeof(float));
  const Scratch scratch(*this, kernels::attention_scratch_bytes(qkv.type(), block.size,
                                                                all_aligned(qkv, keys, values, dout), true));
  by_type(qkv, [&](auto of) {
    of.attention.block_backward(block, of(qkv), of(keys), of(values), of(out), of(dout), statistics,
                                delta.floats(), of(dqkv), of(dkeys), of(dvalues), scratch.data(), stream_);
  });
}

void CudaDevice::rotary(const AttentionSize& size, Numbers qkv, const RotaryAngles& angles, bool inverse) {
  by_type(qkv, [&](auto of) { of.attention.rotary(of(qkv), size, angles, inverse, stream_); });
}

void CudaDevice::embedding_forward(const std::int32_t* tokens, const float* table, Numbers out,
                                   std::int64_t rows, std::int64_t columns, std::int32_t first,
                                   std::int32_t count) {
  by_type(out, [&](auto of) {
    of.elementwise.embedding_forward(tokens, table, of(out), rows, columns, first, count, stream_);
  });
}

void CudaDevice::embedding_backward(const std::int32_t* tokens, ConstNumbers dout, float* dtable,
                                    std::int64_t rows, std::int64_t columns, std::int32_t first,
                                    std::int32_t count) {
  by_type(dout, [&](auto of) {
    of.elementwise.embedding_backward(tokens, of(dout), dtable, rows, columns, first, count, stream_);
  });
}

void CudaDevice::positions_forward(const float* table, Numbers out, std::int64_t rows, std::int64_t columns,
                                   int seq) {
  by_type(out,
          [&](auto of) { of.elementwise.positions_forward(table, of(out), rows, columns, seq, stream_); });
}

void CudaDevice::positions_backward(ConstNumbers dout, float* dtable, std::int64_t rows, std::int64_t columns,
                                    int seq) {
  by_type(dout,
          [&](auto of) { of.elementwise.positions_backward(of(dout), dtable, rows, columns, seq, stream_); });
}

void CudaDevice::loss_max(ConstNumbers logits, float* maximum, std::int64_t rows, std::int64_t columns,
                          std::int64_t stride) {
  by_type(logits, [&](auto of) { of.rowwise.loss_max(of(logits), maximum, rows, columns, stride, stream_); });
}

void CudaDevice::loss_sum(Numbers logits, const float* maximum, const std::int32_t* targets, float* sums,
                          std::int64_t rows, std::int64_t columns, std::int64_t stride, std::int32_t first) {
  by_type(logits, [&](auto of) {
    of.rowwise.loss_sum(of(logits), maximum, targets, sums, rows, columns, stride, first, stream_);
  });
}

void CudaDevice::loss_gradient(Numbers logits, const float* maximum, const float* sums,
                               const std::int32_t* targets, float scale, std::int64_t rows,
                               std::int64_t columns, std::int64_t stride, std::int32_t first, double* loss) {
  by_type(logits, [&](auto of) {
    of.rowwise.loss_gradient(of(logits), maximum, sums, targets, scale, rows, columns, stride, first, loss,
                             stream_);
  });
}

void CudaDevice::gather_rows(ConstNumbers from, const std::int32_t* index, const float* scale, Numbers to,
                             std::int64_t rows, std::int64_t columns) {
  by_type(to, [&](auto of) { of.rows.gather(of(from), index, scale, of(to), rows, columns, stream_); });
}

void CudaDevice::sum_rows(ConstNumbers from, const std::int32_t* index, const float* scale, Numbers to,
                          std::int64_t rows, int per_row, std::int64_t columns, bool accumulate) {
  by_type(to, [&](auto of) {
    of.rows.sum(of(from), index, scale, of(to), rows, per_row, columns, accumulate, stream_);
  });
}

void CudaDevice::dot_rows(ConstNumbers a, ConstNumbers b, const std::int32_t* index, float* out,
                          std::int64_t rows, int per_row, std::int64_t columns) {
  by_type(a, [&](auto of) { of.rows.dot(of(a), of(b), index, out, rows, per_row, columns, stream_); });
}

void CudaDevice::narrow(DType type, const float* from, std::uint16_t* to, std::size_t count, float scale,
                        bool saturate) {
  kernels::narrow(type, from, to, count, scale, saturate, stream_);
}

void CudaDevice::widen(DType type, const std::uint16_t* from, float* to, std::size_t count, float scale) {
  kernels::widen(type, from, to, count, scale, stream_);
}

void CudaDevice::round_to(DType type, float* data, std::size_t count) {
  kernels::round_to(type, data, count, stream_);
}

void CudaDevice::quantize(const float* gradient, float* error, std::byte* payload, std::size_t count) {
  kernels::quantize(gradient, error, payload, count, stream_);
}

void CudaDevice::keep_largest(const float* gradient, float* error, std::byte* payload, std::size_t count,
                              std::size_t kept) {
  const Scratch scratch(*this, kernels::keep_largest_scratch_bytes(count));
  kernels::keep_largest(gradient, error, payload, count, kept, scratch.data(), stream_);
}

void CudaDevice::add_quantized(const std::byte* payload, float* gradient, std::size_t count) {
  kernels::add_quantized(payload, gradient, count, stream_);
}

void CudaDevice::add_largest(const std::byte* payload, float* gradient, std::size_t kept) {
  kernels::add_largest(payload, gradient, kept, stream_);
}

void CudaDevice::sgd(float* weight, const float* gradient, std::size_t count, float rate) {
  kernels::sgd(weight, gradient, count, rate, stream_);
}

void CudaDevice::momentum(float* weight, const float* gradient, float* velocity, std::size_t count,
                          float rate, float factor) {
  kernels::momentum(weight, gradient, velocity, count, rate, factor, stream_);
}

void CudaDevice::adam(float* weight, const float* gradient, float* first, float* second, std::size_t count,
                      const AdamConstants& constants, std::int64_t step) {
  const auto correction = [step](float beta) {
    return static_cast<float>(1.0 - std::pow(static_cast<double>(beta), static_cast<double>(step)));
  };
  kernels::adam(weight, gradient, first, second, count, constants, correction(constants.beta1),
                correction(constants.beta2), stream_);
}

std::unique_ptr<Device> make_cuda_device(int index) {
  return std::make_unique<CudaDevice>(index);
}

}  // namespace orrery::exec
