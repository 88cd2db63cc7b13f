// The small kernels that no library has in the shape needed here. Each launches on `stream` and returns at
// once. Shapes and meanings are exec/device/device.h's; every pointer is device memory.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "exec/device/device.h"

namespace orrery::exec::kernels {

void fill(float* data, std::size_t count, float value, cudaStream_t stream);
void add(float* into, const float* from, std::size_t count, cudaStream_t stream);
void scale(float* data, std::size_t count, float factor, cudaStream_t stream);
void multiply(float* into, const float* by, std::size_t count, cudaStream_t stream);
void softcap(float cap, float* x, float* slopes, std::size_t count, cudaStream_t stream);
void transpose(const float* from, std::int64_t from_stride, float* to, std::int64_t to_stride,
               std::int64_t batch, std::int64_t rows, std::int64_t columns, cudaStream_t stream);
void sum_of_squares(const float* data, std::size_t count, double* result,
                    cudaStream_t stream);  // adds to *result

// A matrix of which `stride` elements lie from row to row; factor 0 does not read it.
void scale_matrix(float* data, std::int64_t rows, std::int64_t columns, std::int64_t stride, float factor,
                  cudaStream_t stream);
void add_bias(float* data, const float* bias, std::int64_t rows, std::int64_t columns, std::int64_t stride,
              cudaStream_t stream);

// Sums over rows go part by part of them, for which a device has enough multiprocessors, and then over the
// parts: in the same order each time. `scratch` of what follows: row_parts(rows) * columns floats for each
// sum.
constexpr std::int64_t kRowsOfPart = 64;
constexpr std::int64_t kMostRowParts = 64;
std::int64_t row_parts(std::int64_t rows);
// sums += the sum over `count` parts of so many columns.
void add_parts(const float* parts, float* sums, std::int64_t count, std::int64_t columns,
               cudaStream_t stream);
void bias_gradient(const float* gradient, float* bias_gradient, std::int64_t rows, std::int64_t columns,
                   std::int64_t stride, float* scratch, cudaStream_t stream);
void residual_forward(const float* branch, const float* bias, const float* residual, float* out,
                      std::int64_t rows, std::int64_t columns, cudaStream_t stream);

void dropout(const Dropout& of, const float* x, float* y, std::int64_t rows, std::int64_t columns,
             cudaStream_t stream);
void dropout_residual(const Dropout& of, const float* branch, const float* bias, const float* residual,
                      float* out, std::int64_t rows, std::int64_t columns, cudaStream_t stream);

// `rms`: RMS norm, else layer norm. The backward's `scratch` is of two sums.
void norm_forward(bool rms, const float* x, const float* weight, const float* bias, float* y, float* mean,
                  float* inverse, std::int64_t rows, std::int64_t columns, float epsilon,
                  cudaStream_t stream);
void norm_backward(bool rms, const float* dy, const float* x, const float* weight, const float* mean,
                   const float* inverse, float* dx, bool accumulate, float* dweight, float* dbias,
                   float* scratch, std::int64_t rows, std::int64_t columns, cudaStream_t stream);

enum class Unary { gelu, silu, relu, gelu_erf };
void activation_forward(Unary kind, bool gated, const float* x, float* y, std::int64_t rows,
                        std::int64_t columns, cudaStream_t stream);
void activation_backward(Unary kind, bool gated, const float* x, const float* dy, float* dx,
                         std::int64_t rows, std::int64_t columns, cudaStream_t stream);

// `type`: of products. In bf16 and fp16 tensor cores multiply queries, keys, values and probabilities, which
// are rounded to it; sums and softmax are fp32's. Elsewhere all of it is fp32.
constexpr int kMaxHeadDim = 256;
// `scratch` of what follows; may be nothing.
std::size_t attention_scratch_bytes(DType type, const AttentionSize& size, bool backward);
void attention_forward(DType type, const float* qkv, float* out, float* statistics, const AttentionSize& size,
                       void* scratch, cudaStream_t stream);
// `delta`: batch * heads * seq floats of scratch.
void attention_backward(DType type, const float* qkv, const float* out, const float* dout,
                        const float* statistics, float* delta, float* dqkv, const AttentionSize& size,
                        void* scratch, cudaStream_t stream);
// One block more of an attention under way (exec/device/device.h); `delta` as above.
void attention_block_forward(DType type, const AttentionBlock& block, const float* qkv, const float* keys,
                             const float* values, float* out, float* statistics, void* scratch,
                             cudaStream_t stream);
void attention_block_backward(DType type, const AttentionBlock& block, const float* qkv, const float* keys,
                              const float* values, const float* out, const float* dout,
                              const float* statistics, float* delta, float* dqkv, float* dkeys,
                              float* dvalues, void* scratch, cudaStream_t stream);
void rotary(float* qkv, const AttentionSize& size, const RotaryAngles& angles, bool inverse,
            cudaStream_t stream);

void embedding_forward(const std::int32_t* tokens, const float* table, float* out, std::int64_t rows,
                       std::int64_t columns, std::int32_t first, std::int32_t count, cudaStream_t stream);
void embedding_backward(const std::int32_t* tokens, const float* dout, float* dtable, std::int64_t rows,
                        std::int64_t columns, std::int32_t first, std::int32_t count, cudaStream_t stream);

void positions_forward(const float* table, float* out, std::int64_t rows, std::int64_t columns, int seq,
                       cudaStream_t stream);
void positions_backward(const float* dout, float* dtable, std::int64_t rows, std::int64_t columns, int seq,
                        cudaStream_t stream);

void loss_max(const float* logits, float* maximum, std::int64_t rows, std::int64_t columns,
              std::int64_t stride, cudaStream_t stream);
void loss_sum(float* logits, const float* maximum, const std::int32_t* targets, float* sums,
              std::int64_t rows, std::int64_t columns, std::int64_t stride, std::int32_t first,
              cudaStream_t stream);
void loss_gradient(float* logits, const float* sums, const std::int32_t* targets, float scale,
                   std::int64_t rows, std::int64_t columns, std::int64_t stride, std::int32_t first,
                   double* loss, cudaStream_t stream);

// ---- Images: `samples` x channels x pixels, as exec/device/device.h has them ----

// A convolution's or pool's windows, and how many samples they are on. Elements of the columns fit an int.
struct Windows {
  int samples;
  int channels, height, width;  // of the input
  int out_height, out_width;
  int kernel[2], stride[2], padding[2], dilation[2];
  bool average;
};

// Row (channel, kernel row, kernel column), column (sample, output pixel) of the columns is what that window
// has there of the image, or zero outside. As a product's factor of `type`.
void images_to_columns(const Windows& windows, DType type, const float* x, void* columns, std::int64_t stride,
                       cudaStream_t stream);
// The other way: every pixel becomes the sum of what stands for it.
void columns_to_images(const Windows& windows, const float* columns, std::int64_t stride, float* x,
                       cudaStream_t stream);
// From samples x channels x pixels to channels x (samples x pixels), and back; bias (may be null) by channel.
void samples_to_channels(DType type, const float* from, void* to, std::int64_t stride, int samples,
                         int channels, int pixels, cudaStream_t stream);
void channels_to_samples(const float* from, std::int64_t stride, const float* bias, float* to, int samples,
                         int channels, int pixels, cudaStream_t stream);
// Sets, or adds to, each channel's sum.
void channel_sums(const float* x, float* sums, bool accumulate, int samples, int channels, int pixels,
                  cudaStream_t stream);

void pool_forward(const Windows& windows, const float* x, float* y, std::int32_t* places,
                  cudaStream_t stream);
void pool_backward(const Windows& windows, const float* dy, const std::int32_t* places, float* dx,
                   cudaStream_t stream);

void batch_norm_forward(const float* x, const float* weight, const float* bias, float* y, float* mean,
                        float* inverse, float* variance, int samples, int channels, int pixels, float epsilon,
                        cudaStream_t stream);
void running_statistics(const float* mean, const float* variance, float* running_mean,
                        float* running_variance, std::int64_t channels, std::int64_t samples, float momentum,
                        cudaStream_t stream);
void batch_norm_backward(const float* dy, const float* x, const float* weight, const float* mean,
                         const float* inverse, float* dx, float* dweight, float* dbias, int samples,
                         int channels, int pixels, cudaStream_t stream);

void gather_rows(const float* from, const std::int32_t* index, const float* scale, float* to,
                 std::int64_t rows, std::int64_t columns, cudaStream_t stream);
void sum_rows(const float* from, const std::int32_t* index, const float* scale, float* to, std::int64_t rows,
              int per_row, std::int64_t columns, bool accumulate, cudaStream_t stream);
void dot_rows(const float* a, const float* b, const std::int32_t* index, float* out, std::int64_t rows,
              int per_row, std::int64_t columns, cudaStream_t stream);

void narrow(DType type, const float* from, std::uint16_t* to, std::size_t count, float scale, bool saturate,
            cudaStream_t stream);
// rows x columns become the upper left of to_rows x to_stride (a multiple of 8, aligned to 16 bytes), zero
// elsewhere.
void narrow_matrix(DType type, const float* from, std::int64_t from_stride, std::uint16_t* to,
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
