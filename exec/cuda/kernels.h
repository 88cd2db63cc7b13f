// The small kernels that no library has in the shape needed here. Each launches on `stream` and returns at
// once. Shapes and meanings are exec/device.h's; every pointer is device memory.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace orrery::exec::kernels {

void fill(float* data, std::size_t count, float value, cudaStream_t stream);
void add(float* into, const float* from, std::size_t count, cudaStream_t stream);
void scale(float* data, std::size_t count, float factor, cudaStream_t stream);
void sum_of_squares(const float* data, std::size_t count, double* result,
                    cudaStream_t stream);  // adds to *result

void add_bias(float* data, const float* bias, std::int64_t rows, std::int64_t columns, cudaStream_t stream);
void bias_gradient(const float* gradient, float* bias_gradient, std::int64_t rows, std::int64_t columns,
                   cudaStream_t stream);

// `rms`: RMS norm, else layer norm. The backward's dweight and dbias are accumulated by column blocks.
void norm_forward(bool rms, const float* x, const float* weight, const float* bias, float* y, float* mean,
                  float* inverse, std::int64_t rows, std::int64_t columns, float epsilon,
                  cudaStream_t stream);
void norm_backward(bool rms, const float* dy, const float* x, const float* weight, const float* mean,
                   const float* inverse, float* dx, float* dweight, float* dbias, std::int64_t rows,
                   std::int64_t columns, cudaStream_t stream);

enum class Unary { gelu, silu, relu };
void activation_forward(Unary kind, bool gated, const float* x, float* y, std::int64_t rows,
                        std::int64_t columns, cudaStream_t stream);
void activation_backward(Unary kind, bool gated, const float* x, const float* dy, float* dx,
                         std::int64_t rows, std::int64_t columns, cudaStream_t stream);

struct AttentionLayout {
  int batch = 0, seq = 0, heads = 0, kv_heads = 0, head_dim = 0;
  bool causal = true;
};
constexpr int kMaxHeadDim = 256;
void attention_forward(const float* qkv, float* out, float* statistics, const AttentionLayout& layout,
                       cudaStream_t stream);
// `delta`: batch * heads * seq floats of scratch.
void attention_backward(const float* qkv, const float* out, const float* dout, const float* statistics,
                        float* delta, float* dqkv, const AttentionLayout& layout, cudaStream_t stream);
void rotary(float* qkv, const AttentionLayout& layout, float theta, bool inverse, cudaStream_t stream);

void embedding_forward(const std::int32_t* tokens, const float* table, float* out, std::int64_t rows,
                       std::int64_t columns, std::int32_t first, std::int32_t count, cudaStream_t stream);
void embedding_backward(const std::int32_t* tokens, const float* dout, float* dtable, std::int64_t rows,
                        std::int64_t columns, std::int32_t first, std::int32_t count, cudaStream_t stream);

void loss_max(const float* logits, float* maximum, std::int64_t rows, std::int64_t columns,
              cudaStream_t stream);
void loss_sum(const float* logits, const float* maximum, const std::int32_t* targets, float* sums,
              std::int64_t rows, std::int64_t columns, std::int32_t first, cudaStream_t stream);
void loss_gradient(float* logits, const float* maximum, const float* sums, const std::int32_t* targets,
                   float scale, std::int64_t rows, std::int64_t columns, std::int32_t first, double* loss,
                   cudaStream_t stream);

void sgd(float* weight, const float* gradient, std::size_t count, float rate, cudaStream_t stream);
void momentum(float* weight, const float* gradient, float* velocity, std::size_t count, float rate,
              float factor, cudaStream_t stream);
struct AdamStep {
  float rate = 0, beta1 = 0, beta2 = 0, epsilon = 0, weight_decay = 0, correction1 = 1, correction2 = 1;
};
void adam(float* weight, const float* gradient, float* first, float* second, std::size_t count,
          const AdamStep& step, cudaStream_t stream);

}  // namespace orrery::exec::kernels
