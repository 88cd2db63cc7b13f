// The layers' mathematics on one device: CPU (OpenBLAS, oneDNN) or CUDA (cuBLASLt and small kernels).
//
// All matrices are row-major and contiguous; `rows` are tokens. Arithmetic is fp32 unless the type says
// otherwise. Calls are asynchronous on CUDA (one compute stream) and immediate on the CPU. Pointers are the
// device's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/dtype.h"
#include "workloads/workload.h"

namespace orrery::exec {

class Device {
 public:
  virtual ~Device() = default;
  virtual std::string name() const = 0;
  virtual bool host_memory() const = 0;  // pointers can be read by the host (and by MPI)

  virtual void* allocate(std::size_t bytes) = 0;  // throws NoAnswer("out of memory …")
  virtual void release(void* data) = 0;
  virtual std::size_t peak_bytes() const = 0;  // most allocated at once
  virtual void copy_to_device(void* device, const void* host, std::size_t bytes) = 0;
  virtual void copy_to_host(void* host, const void* device, std::size_t bytes) = 0;
  virtual void synchronize() = 0;

  virtual void fill(float* data, std::size_t count, float value) = 0;
  virtual void add(float* into, const float* from, std::size_t count) = 0;  // into += from
  virtual void scale(float* data, std::size_t count, float factor) = 0;
  virtual double sum_of_squares(const float* data, std::size_t count) = 0;  // synchronises

  // c = alpha * op(a) op(b) + beta * c; op(a) is m x k, op(b) k x n.
  virtual void gemm(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k,
                    float alpha, const float* a, const float* b, float beta, float* c) = 0;
  virtual void add_bias(float* data, const float* bias, std::int64_t rows, std::int64_t columns) = 0;
  virtual void bias_gradient(const float* gradient, float* bias_gradient, std::int64_t rows,
                             std::int64_t columns) = 0;  // accumulates

  // Layer norm (bias may be null) or RMS norm. `mean` (unused by RMS) and `inverse` hold one value a row for
  // backward.
  virtual void norm_forward(NormKind kind, const float* x, const float* weight, const float* bias, float* y,
                            float* mean, float* inverse, std::int64_t rows, std::int64_t columns,
                            float epsilon) = 0;
  // dx is added to; dweight and dbias (may be null) accumulate.
  virtual void norm_backward(NormKind kind, const float* dy, const float* x, const float* weight,
                             const float* mean, const float* inverse, float* dx, float* dweight, float* dbias,
                             std::int64_t rows, std::int64_t columns) = 0;

  // y = f(x); gated: x is rows x 2*columns (gate | up), y = f(gate) * up.
  virtual void activation_forward(Activation kind, bool gated, const float* x, float* y, std::int64_t rows,
                                  std::int64_t columns) = 0;
  virtual void activation_backward(Activation kind, bool gated, const float* x, const float* dy, float* dx,
                                   std::int64_t rows, std::int64_t columns) = 0;

  // Softmax attention over `batch` sequences of `seq` tokens. qkv is rows x (heads + 2*kv_heads) * head_dim,
  // laid out q | k | v; out is rows x heads * head_dim. `statistics` holds batch*heads*seq log-sum-exps for
  // backward.
  virtual void attention_forward(const float* qkv, float* out, float* statistics, int batch, int seq,
                                 int heads, int kv_heads, int head_dim, bool causal) = 0;
  virtual void attention_backward(const float* qkv, const float* out, const float* dout,
                                  const float* statistics, float* dqkv, int batch, int seq, int heads,
                                  int kv_heads, int head_dim, bool causal) = 0;
  // Rotary embedding of q and k inside qkv, in place; `inverse` undoes it on gradients.
  virtual void rotary(float* qkv, int batch, int seq, int heads, int kv_heads, int head_dim, float theta,
                      bool inverse) = 0;

  // Rows of `table` for tokens in [first, first + count) of the vocabulary, zero for others (vocabulary
  // split).
  virtual void embedding_forward(const std::int32_t* tokens, const float* table, float* out,
                                 std::int64_t rows, std::int64_t columns, std::int32_t first,
                                 std::int32_t count) = 0;
  virtual void embedding_backward(const std::int32_t* tokens, const float* dout, float* dtable,
                                  std::int64_t rows, std::int64_t columns, std::int32_t first,
                                  std::int32_t count) = 0;

  // Cross entropy in three parts, so that a split vocabulary can reduce between them (Megatron-LM, arXiv
  // 1909.08053).
  virtual void loss_max(const float* logits, float* maximum, std::int64_t rows, std::int64_t columns) = 0;
  // sums: rows x 2: sum of exp(logit - maximum), and the target's logit where it is in [first, first +
  // columns).
  virtual void loss_sum(const float* logits, const float* maximum, const std::int32_t* targets, float* sums,
                        std::int64_t rows, std::int64_t columns, std::int32_t first) = 0;
  // Turns logits into their gradient times `scale`, in place; returns the sum of the rows' losses
  // (synchronises).
  virtual double loss_gradient(float* logits, const float* maximum, const float* sums,
                               const std::int32_t* targets, float scale, std::int64_t rows,
                               std::int64_t columns, std::int32_t first) = 0;

  virtual void sgd(float* weight, const float* gradient, std::size_t count, float rate) = 0;
  virtual void momentum(float* weight, const float* gradient, float* velocity, std::size_t count, float rate,
                        float momentum) = 0;
  virtual void adam(float* weight, const float* gradient, float* first, float* second, std::size_t count,
                    float rate, float beta1, float beta2, float epsilon, float weight_decay,
                    std::int64_t step) = 0;
};

std::unique_ptr<Device> make_cpu_device();
std::unique_ptr<Device> make_cuda_device(int index);  // defined where CUDA was found at configure time

}  // namespace orrery::exec
