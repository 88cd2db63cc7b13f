#include "exec/cuda/cuda_device.h"

#include <fmt/format.h>

#include <cmath>

#include "base/error.h"
#include "exec/communicators/clock.h"
#include "exec/cuda/check.h"
#include "exec/cuda/kernels.h"
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

void CudaDevice::copy_matrix(float* to, std::int64_t to_stride, const float* from, std::int64_t from_stride,
                             std::int64_t rows, std::int64_t columns) {
  if (rows == 0 || columns == 0) return;
  const auto bytes = [](std::int64_t elements) { return static_cast<std::size_t>(elements) * sizeof(float); };
  ORRERY_CUDA(cudaMemcpy2DAsync(to, bytes(to_stride), from, bytes(from_stride), bytes(columns),
                                static_cast<std::size_t>(rows), cudaMemcpyDeviceToDevice, stream_));
}

void CudaDevice::transpose(const float* from, std::int64_t from_stride, float* to, std::int64_t to_stride,
                           std::int64_t batch, std::int64_t rows, std::int64_t columns) {
  kernels::transpose(from, from_stride, to, to_stride, batch, rows, columns, stream_);
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

void CudaDevice::fill(float* data, std::size_t count, float value) {
  kernels::fill(data, count, value, stream_);
}
void CudaDevice::add(float* into, const float* from, std::size_t count) {
  kernels::add(into, from, count, stream_);
}
void CudaDevice::scale(float* data, std::size_t count, float factor) {
  kernels::scale(data, count, factor, stream_);
}

void CudaDevice::multiply(float* into, const float* by, std::size_t count) {
  kernels::multiply(into, by, count, stream_);
}

void CudaDevice::softcap(float cap, float* x, float* slopes, std::size_t count) {
  kernels::softcap(cap, x, slopes, count, stream_);
}

double CudaDevice::sum_of_squares(const float* data, std::size_t count) {
  ORRERY_CUDA(cudaMemsetAsync(scalar_, 0, sizeof(double), stream_));
  kernels::sum_of_squares(data, count, scalar_, stream_);
  double value = 0;
  copy_to_host(&value, scalar_, sizeof value);
  return value;
}

Factor CudaDevice::in_product_type(const Factor& factor) {
  if (factor_bytes() != 2) return factor;
  Factor packed = factor;
  packed.stride = packed_stride(factor.columns);
  const std::int64_t rows = packed_stride(factor.rows);
  void* memory = allocate(static_cast<std::size_t>(rows * packed.stride) * sizeof(std::uint16_t));
  kernels::narrow_matrix(product_type_, static_cast<const float*>(factor.data), factor.stride,
                         static_cast<std::uint16_t*>(memory), packed.stride, factor.rows, factor.columns,
                         rows, stream_);
  packed.data = memory;
  return packed;
}

void CudaDevice::release_narrowed(const Factor& factor) {
  if (factor_bytes() == 2) release(const_cast<void*>(factor.data));  // NOLINT: allocated here
}

// A result whose rows or columns are no multiple of eight takes cuBLASLt up to seven times as long (GPT-2's
// 50,257 tokens on an H200): what is beyond one is a product of its own. Narrowed factors have zeros there,
// so that what is summed over may be a multiple, too. Calls multiply(left, right, result, its first column)
// for each piece.
template <class Multiply>
void CudaDevice::in_even_pieces(Factor left, Factor right, const Result& c, Multiply multiply) {
  if (factor_bytes() != 2) return multiply(left, right, c, 0);
  const std::int64_t sum = packed_stride(left.transposed ? left.rows : left.columns);
  (left.transposed ? left.rows : left.columns) = sum;
  (right.transposed ? right.columns : right.rows) = sum;
  const auto part = [](const Factor& factor, bool of_rows, std::int64_t first, std::int64_t count) {
    Factor result = factor;
    (of_rows ? result.rows : result.columns) = count;
    result.data = static_cast<const std::uint16_t*>(factor.data) + (of_rows ? first * factor.stride : first);
    return result;
  };
  const auto even = [](std::int64_t size) { return size < 8 * kEven ? size : size / kEven * kEven; };
  for (std::int64_t row = 0; row < c.rows;) {
    const std::int64_t rows = row == 0 ? even(c.rows) : c.rows - row;
    const Factor l = part(left, !left.transposed, row, rows);
    for (std::int64_t column = 0; column < c.columns;) {
      const std::int64_t columns = column == 0 ? even(c.columns) : c.columns - column;
      const Factor r = part(right, right.transposed, column, columns);
      multiply(l, r, Result{c.data + row * c.stride + column, rows, columns, c.stride}, column);
      column += columns;
    }
    row += rows;
  }
}

void CudaDevice::gemm(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k,
                      float alpha, const float* a, std::int64_t lda, const float* b, std::int64_t ldb,
                      float beta, float* c, std::int64_t ldc) {
  if (m == 0 || n == 0) return;
  if (k == 0) {
    kernels::scale_matrix(c, m, n, ldc, beta, stream_);
    return;
  }
  const Factor left = in_product_type({a, transpose_a, transpose_a ? k : m, transpose_a ? m : k, lda});
  const Factor right = in_product_type({b, transpose_b, transpose_b ? n : k, transpose_b ? k : n, ldb});
  in_even_pieces(left, right, {c, m, n, ldc},
                 [&](const Factor& l, const Factor& r, const Result& piece, std::int64_t) {
                   products_->multiply(product_type_, l, r, piece, alpha, beta, 1, stream_);
                 });
  release_narrowed(left);
  release_narrowed(right);
}

void CudaDevice::linear(bool out_by_in, std::int64_t rows, std::int64_t out, std::int64_t in, const float* x,
                        std::int64_t x_stride, const float* weight, const float* bias, float* y,
                        std::int64_t y_stride) {
  const std::int64_t weight_stride = out_by_in ? in : out;
  if (bias == nullptr || rows == 0 || out == 0 || in == 0) {
    gemm(false, out_by_in, rows, out, in, 1, x, x_stride, weight, weight_stride, 0, y, y_stride);
    if (bias != nullptr) add_bias(y, bias, rows, out, y_stride);
    return;
  }
  const Factor left = in_product_type({x, false, rows, in, x_stride});
  const Factor right =
      in_product_type({weight, out_by_in, out_by_in ? out : in, out_by_in ? in : out, weight_stride});
  in_even_pieces(left, right, {y, rows, out, y_stride},
                 [&](const Factor& l, const Factor& r, const Result& piece, std::int64_t column) {
                   if (!products_->multiply_and_add(product_type_, l, r, bias + column, piece, stream_))
                     add_bias(piece.data, bias + column, piece.rows, piece.columns, y_stride);
                 });
  release_narrowed(left);
  release_narrowed(right);
}

void CudaDevice::add_bias(float* data, const float* bias, std::int64_t rows, std::int64_t columns,
                          std::int64_t stride) {
  kernels::add_bias(data, bias, rows, columns, stride, stream_);
}

void CudaDevice::bias_gradient(const float* gradient, float* out, std::int64_t rows, std::int64_t columns,
                               std::int64_t stride) {
  const Scratch scratch(*this, kernels::row_parts(rows) * columns, sizeof(float));
  kernels::bias_gradient(gradient, out, rows, columns, stride, scratch.floats(), stream_);
}

void CudaDevice::residual_forward(const float* branch, const float* bias, const float* stream, float* out,
                                  std::int64_t rows, std::int64_t columns) {
  kernels::residual_forward(branch, bias, stream, out, rows, columns, stream_);
}

void CudaDevice::dropout(const Dropout& of, const float* x, float* y, std::int64_t rows,
                         std::int64_t columns) {
  kernels::dropout(of, x, y, rows, columns, stream_);
}

void CudaDevice::dropout_residual(const Dropout& of, const float* branch, const float* bias,
                                  const float* stream, float* out, std::int64_t rows, std::int64_t columns) {
  kernels::dropout_residual(of, branch, bias, stream, out, rows, columns, stream_);
}

void CudaDevice::norm_forward(NormKind kind, const float* x, const float* weight, const float* bias, float* y,
                              float* mean, float* inverse, std::int64_t rows, std::int64_t columns,
                              float epsilon) {
  kernels::norm_forward(kind == NormKind::rms_norm, x, weight, bias, y, mean, inverse, rows, columns, epsilon,
                        stream_);
}

void CudaDevice::norm_backward(NormKind kind, const float* dy, const float* x, const float* weight,
                               const float* mean, const float* inverse, float* dx, bool accumulate,
                               float* dweight, float* dbias, std::int64_t rows, std::int64_t columns) {
  const Scratch scratch(*this, 2 * kernels::row_parts(rows) * columns, sizeof(float));
  kernels::norm_backward(kind == NormKind::rms_norm, dy, x, weight, mean, inverse, dx, accumulate, dweight,
                         dbias, scratch.floats(), rows, columns, stream_);
}

void CudaDevice::activation_forward(Activation kind, bool gated, const float* x, float* y, std::int64_t rows,
                                    std::int64_t columns) {
  kernels::activation_forward(unary(kind), gated, x, y, rows, columns, stream_);
}

void CudaDevice::activation_backward(Activation kind, bool gated, const float* x, const float* dy, float* dx,
                                     std::int64_t rows, std::int64_t columns) {
  kernels::activation_backward(unary(kind), gated, x, dy, dx, rows, columns, stream_);
}

void CudaDevice::attention_forward(const AttentionSize& size, const float* qkv, float* out,
                                   float* statistics) {
  const Scratch scratch(*this, kernels::attention_scratch_bytes(product_type_, size, false));
  kernels::attention_forward(product_type_, qkv, out, statistics, size, scratch.data(), stream_);
}

void CudaDevice::attention_backward(const AttentionSize& size, const float* qkv, const float* out,
                                    const float* dout, const float* statistics, float* dqkv) {
  const Scratch delta(*this, elements_of_statistics(size), sizeof(float));
  const Scratch scratch(*this, kernels::attention_scratch_bytes(product_type_, size, true));
  kernels::attention_backward(product_type_, qkv, out, dout, statistics, delta.floats(), dqkv, size,
                              scratch.data(), stream_);
}

void CudaDevice::attention_block_forward(const AttentionBlock& block, const float* qkv, const float* keys,
                                         const float* values, float* out, float* statistics) {
  const Scratch scratch(*this, kernels::attention_scratch_bytes(product_type_, block.size, false));
  kernels::attention_block_forward(product_type_, block, qkv, keys, values, out, statistics, scratch.data(),
                                   stream_);
}

void CudaDevice::attention_block_backward(const AttentionBlock& block, const float* qkv, const float* keys,
                                          const float* values, const float* out, const float* dout,
                                          const float* statistics, float* dqkv, float* dkeys,
                                          float* dvalues) {
  const Scratch delta(*this, elements_of_statistics(block.size), sizeof(float));
  const Scratch scratch(*this, kernels::attention_scratch_bytes(product_type_, block.size, true));
  kernels::attention_block_backward(product_type_, block, qkv, keys, values, out, dout, statistics,
                                    delta.floats(), dqkv, dkeys, dvalues, scratch.data(), stream_);
}

void CudaDevice::rotary(const AttentionSize& size, float* qkv, const RotaryAngles& angles, bool inverse) {
  kernels::rotary(qkv, size, angles, inverse, stream_);
}

void CudaDevice::embedding_forward(const std::int32_t* tokens, const float* table, float* out,
                                   std::int64_t rows, std::int64_t columns, std::int32_t first,
                                   std::int32_t count) {
  kernels::embedding_forward(tokens, table, out, rows, columns, first, count, stream_);
}

void CudaDevice::embedding_backward(const std::int32_t* tokens, const float* dout, float* dtable,
                                    std::int64_t rows, std::int64_t columns, std::int32_t first,
                                    std::int32_t count) {
  kernels::embedding_backward(tokens, dout, dtable, rows, columns, first, count, stream_);
}

void CudaDevice::positions_forward(const float* table, float* out, std::int64_t rows, std::int64_t columns,
                                   int seq) {
  kernels::positions_forward(table, out, rows, columns, seq, stream_);
}

void CudaDevice::positions_backward(const float* dout, float* dtable, std::int64_t rows, std::int64_t columns,
                                    int seq) {
  kernels::positions_backward(dout, dtable, rows, columns, seq, stream_);
}

void CudaDevice::loss_max(const float* logits, float* maximum, std::int64_t rows, std::int64_t columns,
                          std::int64_t stride) {
  kernels::loss_max(logits, maximum, rows, columns, stride, stream_);
}

void CudaDevice::loss_sum(float* logits, const float* maximum, const std::int32_t* targets, float* sums,
                          std::int64_t rows, std::int64_t columns, std::int64_t stride, std::int32_t first) {
  kernels::loss_sum(logits, maximum, targets, sums, rows, columns, stride, first, stream_);
}

void CudaDevice::loss_gradient(float* logits, const float* sums, const std::int32_t* targets, float scale,
                               std::int64_t rows, std::int64_t columns, std::int64_t stride,
                               std::int32_t first, double* loss) {
  kernels::loss_gradient(logits, sums, targets, scale, rows, columns, stride, first, loss, stream_);
}

void CudaDevice::gather_rows(const float* from, const std::int32_t* index, const float* scale, float* to,
                             std::int64_t rows, std::int64_t columns) {
  kernels::gather_rows(from, index, scale, to, rows, columns, stream_);
}

void CudaDevice::sum_rows(const float* from, const std::int32_t* index, const float* scale, float* to,
                          std::int64_t rows, int per_row, std::int64_t columns, bool accumulate) {
  kernels::sum_rows(from, index, scale, to, rows, per_row, columns, accumulate, stream_);
}

void CudaDevice::dot_rows(const float* a, const float* b, const std::int32_t* index, float* out,
                          std::int64_t rows, int per_row, std::int64_t columns) {
  kernels::dot_rows(a, b, index, out, rows, per_row, columns, stream_);
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
