// The small kernels that no library has in the shape needed here. Each launches on `stream` and returns at
// once. Shapes and meanings are exec/device/device.h's; every pointer is device memory.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "exec/cuda/element_types.h"
#include "exec/device/device.h"

namespace orrery::exec::kernels {

// ---- Of numbers of one type: T is float, Bf16 or Fp16. Arithmetic is fp32's. ----

// Sums over rows go part by part of them, for which a device has enough multiprocessors, and then over the
// parts: in the same order each time. `scratch` of what follows: row_parts(rows) * columns floats for each
// sum.
constexpr std::int64_t kRowsOfPart = 64;
constexpr std::int64_t kMostRowParts = 64;
std::int64_t row_parts(std::int64_t rows);
// sums += the sum over `count` parts of so many columns.
void add_parts(const float* parts, float* sums, std::int64_t count, std::int64_t columns,
               cudaStream_t stream);

enum class Unary { gelu, silu, relu, gelu_erf };

template <class T>
struct Elementwise {
  static void fill(T* data, std::size_t count, float value, cudaStream_t stream);
  static void add(T* into, const T* from, std::size_t count, cudaStream_t stream);
  static void scale(T* data, std::size_t count, float factor, cudaStream_t stream);
  static void multiply(T* into, const T* by, std::size_t count, cudaStream_t stream);
  static void softcap(float cap, T* x, T* slopes, std::size_t count, cudaStream_t stream);
  static void transpose(const T* from, std::int64_t from_stride, T* to, std::int64_t to_stride,
                        std::int64_t batch, std::int64_t rows, std::int64_t columns, cudaStream_t stream);
  // A matrix of which `stride` elements lie from row to row; factor 0 does not read it.
  static void scale_matrix(T* data, std::int64_t rows, std::int64_t columns, std::int64_t stride,
                           float factor, cudaStream_t stream);
  static void add_bias(T* data, const float* bias, std::int64_t rows, std::int64_t columns,
                       std::int64_t stride, cudaStream_t stream);
  static void bias_gradient(const T* gradient, float* bias_gradient, std::int64_t rows, std::int64_t columns,
                            std::int64_t stride, float* scratch, cudaStream_t stream);
  static void residual_forward(const T* branch, const float* bias, const T* residual, T* out,
                               std::int64_t rows, std::int64_t columns, cudaStream_t stream);
  static void dropout(const Dropout& of, const T* x, T* y, std::int64_t rows, std::int64_t columns,
                      cudaStream_t stream);
  static void dropout_residual(const Dropout& of, const T* branch, const float* bias, const T* residual,
                               T* out, std::int64_t rows, std::int64_t columns, cudaStream_t stream);
  static void activation_forward(Unary kind, bool gated, const T* x, T* y, std::int64_t rows,
                                 std::int64_t columns, cudaStream_t stream);
  static void activation_backward(Unary kind, bool gated, const T* x, const T* dy, T* dx, std::int64_t rows,
                                  std::int64_t columns, cudaStream_t stream);
  static void embedding_forward(const std::int32_t* tokens, const float* table, T* out, std::int64_t rows,
                                std::int64_t columns, std::int32_t first, std::int32_t count,
                                cudaStream_t stream);
  static void embedding_backward(const std::int32_t* tokens, const T* dout, float* dtable, std::int64_t rows,
                                 std::int64_t columns, std::int32_t first, std::int32_t count,
                                 cudaStream_t stream);
  static void positions_forward(const float* table, T* out, std::int64_t rows, std::int64_t columns, int seq,
                                cudaStream_t stream);
  static void positions_backward(const T* dout, float* dtable, std::int64_t rows, std::int64_t columns,
                                 int seq, cudaStream_t stream);
};

template <class T>
struct Rowwise {
  // `rms`: RMS norm, else layer norm. The backward's `scratch` is of two sums.
  static void norm_forward(bool rms, const T* x, const float* weight, const float* bias, T* y, float* mean,
                           float* inverse, std::int64_t rows, std::int64_t columns, float epsilon,
                           cudaStream_t stream);
  static void norm_backward(bool rms, const T* dy, const T* x, const float* weight, const float* mean,
                            const float* inverse, T* dx, bool accumulate, float* dweight, float* dbias,
                            float* scratch, std::int64_t rows, std::int64_t columns, cudaStream_t stream);
  // Logits stay as they are until their gradient takes their place, for which exponentials are made again:
  // they are rounded once.
  static void loss_max(const T* logits, float* maximum, std::int64_t rows, std::int64_t columns,
                       std::int64_t stride, cudaStream_t stream);
  static void loss_sum(const T* logits, const float* maximum, const std::int32_t* targets, float* sums,
                       std::int64_t rows, std::int64_t columns, std::int64_t stride, std::int32_t first,
                       cudaStream_t stream);
  static void loss_gradient(T* logits, const float* maximum, const float* sums, const std::int32_t* targets,
                            float scale, std::int64_t rows, std::int64_t columns, std::int64_t stride,
                            std::int32_t first, double* loss, cudaStream_t stream);
};

// Rows by index.
template <class T>
struct Rows {
  static void gather(const T* from, const std::int32_t* index, const float* scale, T* to, std::int64_t rows,
                     std::int64_t columns, cudaStream_t stream);
  static void sum(const T* from, const std::int32_t* index, const float* scale, T* to, std::int64_t rows,
                  int per_row, std::int64_t columns, bool accumulate, cudaStream_t stream);
  static void dot(const T* a, const T* b, const std::int32_t* index, float* out, std::int64_t rows,
                  int per_row, std::int64_t columns, cudaStream_t stream);
};

// Tensor cores multiply queries, keys, values and probabilities of two bytes, the latter rounded to them;
// sums and softmax are fp32's. Elsewhere all of it is fp32. `scratch`: of attention_scratch_bytes, may be
// nothing; `delta`: batch * heads * seq floats.
constexpr int kMaxHeadDim = 256;
// `aligned`: whether all that is read begins at a multiple of 16 bytes.
std::size_t attention_scratch_bytes(DType type, const AttentionSize& size, bool aligned, bool backward);
template <class T>
struct Attention {
  static void forward(const AttentionSize& size, const T* qkv, T* out, float* statistics, void* scratch,
                      cudaStream_t stream);
  static void backward(const AttentionSize& size, const T* qkv, const T* out, const T* dout,
                       const float* statistics, float* delta, T* dqkv, void* scratch, cudaStream_t stream);
  // One block more of an attention under way (exec/device/device.h).
  static void block_forward(const AttentionBlock& block, const T* qkv, const T* keys, const T* values, T* out,
                            float* statistics, void* scratch, cudaStream_t stream);
  static void block_backward(const AttentionBlock& block, const T* qkv, const T* keys, const T* values,
                             const T* out, const T* dout, const float* statistics, float* delta, T* dqkv,
                             T* dkeys, T* dvalues, void* scratch, cudaStream_t stream);
  static void rotary(T* qkv, const AttentionSize& size, const RotaryAngles& angles, bool inverse,
                     cudaStream_t stream);
};

// ---- Images: `samples` x channels x pixels, as exec/device/device.h has them ----

// A convolution's or pool's windows, and how many samples they are on. Elements of the columns fit an int.
struct Windows {
  int samples;
  int channels, height, width;  // of the input
  int out_height, out_width;
  int kernel[2], stride[2], padding[2], dilation[2];
  bool average;
};

template <class T>
struct Images {
  // Row (channel, kernel row, kernel column), column (sample, output pixel) of the columns is what that
  // window has there of the image, or zero outside. As a product's factor of `type`.
  static void to_columns(const Windows& windows, DType type, const T* x, void* columns, std::int64_t stride,
                         cudaStream_t stream);
  // The other way: every pixel becomes the sum of what stands for it.
  static void from_columns(const Windows& windows, const float* columns, std::int64_t stride, T* x,
                           cudaStream_t stream);
  // From samples x channels x pixels to channels x (samples x pixels), and back; bias (may be null) by
  // channel.
  static void to_channels(DType type, const T* from, void* to, std::int64_t stride, int samples, int channels,
                          int pixels, cudaStream_t stream);
  static void from_channels(const float* from, std::int64_t stride, const float* bias, T* to, int samples,
                            int channels, int pixels, cudaStream_t stream);
  // Sets, or adds to, each channel's sum.
  static void channel_sums(const T* x, float* sums, bool accumulate, int samples, int channels, int pixels,
                           cudaStream_t stream);
  static void pool_forward(const Windows& windows, const T* x, T* y, std::int32_t* places,
                           cudaStream_t stream);
  static void pool_backward(const Windows& windows, const T* dy, const std::int32_t* places, T* dx,
                            cudaStream_t stream);
  static void batch_norm_forward(const T* x, const float* weight, const float* bias, T* y, float* mean,
                                 float* inverse, float* variance, int samples, int channels, int pixels,
                                 float epsilon, cudaStream_t stream);
  static void batch_norm_backward(const T* dy, const T* x, const float* weight, const float* mean,
                                  const float* inverse, T* dx, float* dweight, float* dbias, int samples,
                                  int channels, int pixels, cudaStream_t stream);
};
void running_statistics(const float* mean, const float* variance, float* running_mean,
                        float* running_variance, std::int64_t channels, std::int64_t samples, float momentum,
                        cudaStream_t stream);

// ---- Of fp32 words, and between types ----

void sum_of_squares(const float* data, std::size_t count, double* result,
                    cudaStream_t stream);  // adds to *result
void narrow(DType type, const float* from, std::uint16_t* to, std::size_t count, float scale, bool saturate,
            cudaStream_t stream);
// rows x columns of fp32 words, or of `type` itself, become the upper left of to_rows x to_stride (a multiple
// of 8, aligned to 16 bytes), zero elsewhere.
void pack_matrix(DType type, ConstNumbers from, std::int64_t from_stride, std::uint16_t* to,
                 std::int64_t to_stride, std::int64_t rows, std::int64_t columns, std::int64_t to_rows,
                 cudaStream_t stream);
void widen(DType type, const std::uint16_t* from, float* to, std::size_t count, float scale,
           cudaStream_t stream);
void round_to(DType type, float* data, std::size_t count, cudaStream_t stream);

void quantize(const float* gradient, float* error, std::byte* payload, std::size_t count,
              cudaStream_t stream);
void add_quantized(const std::byte* payload, float* gradient, std::size_t count, cudaStream_t stream);
// `scratch`: keep_largest_scratch_bytes(count).
std::size_t keep_largest_scratch_bytes(std::size_t count);
void keep_largest(const float* gradient, float* error, std::byte* payload, std::size_t count,
                  std::size_t kept, void* scratch, cudaStream_t stream);
void add_largest(const std::byte* payload, float* gradient, std::size_t kept, cudaStream_t stream);

void sgd(float* weight, const float* gradient, std::size_t count, float rate, cudaStream_t stream);
void momentum(float* weight, const float* gradient, float* velocity, std::size_t count, float rate,
              float factor, cudaStream_t stream);
// correction1, correction2: 1 - beta^step.
void adam(float* weight, const float* gradient, float* first, float* second, std::size_t count,
          const AdamConstants& constants, float correction1, float correction2, cudaStream_t stream);

}  // namespace orrery::exec::kernels
