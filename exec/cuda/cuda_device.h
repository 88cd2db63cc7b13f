// The layers' mathematics on one CUDA device: cuBLASLt for the matrix products, small kernels (kernels.h) for
// the rest.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <map>
#include <tuple>
#include <unordered_map>

#include "exec/device.h"

namespace orrery::exec {

// One compute stream; every call returns at once unless exec/device.h says that it synchronises. Memory comes
// from CUDA's stream-ordered pool, which keeps what is released, so that a training step does not allocate.
class CudaDevice final : public Device {
 public:
  explicit CudaDevice(int index);
  ~CudaDevice() override;
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  cudaStream_t stream() const { return stream_; }
  int index() const { return index_; }

  std::string name() const override;
  bool host_memory() const override { return false; }
  void* allocate(std::size_t bytes) override;
  void release(void* data) override;
  std::size_t peak_bytes() const override { return peak_; }
  void copy_to_device(void* device, const void* host, std::size_t bytes) override;
  void copy_to_host(void* host, const void* device, std::size_t bytes) override;
  void synchronize() override;

  void fill(float* data, std::size_t count, float value) override;
  void add(float* into, const float* from, std::size_t count) override;
  void scale(float* data, std::size_t count, float factor) override;
  double sum_of_squares(const float* data, std::size_t count) override;

  void gemm(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, float alpha,
            const float* a, const float* b, float beta, float* c) override;
  void add_bias(float* data, const float* bias, std::int64_t rows, std::int64_t columns) override;
  void bias_gradient(const float* gradient, float* bias_gradient, std::int64_t rows,
                     std::int64_t columns) override;

  void norm_forward(NormKind kind, const float* x, const float* weight, const float* bias, float* y,
                    float* mean, float* inverse, std::int64_t rows, std::int64_t columns,
                    float epsilon) override;
  void norm_backward(NormKind kind, const float* dy, const float* x, const float* weight, const float* mean,
                     const float* inverse, float* dx, float* dweight, float* dbias, std::int64_t rows,
                     std::int64_t columns) override;
  void activation_forward(Activation kind, bool gated, const float* x, float* y, std::int64_t rows,
                          std::int64_t columns) override;
  void activation_backward(Activation kind, bool gated, const float* x, const float* dy, float* dx,
                           std::int64_t rows, std::int64_t columns) override;

  void attention_forward(const float* qkv, float* out, float* statistics, int batch, int seq, int heads,
                         int kv_heads, int head_dim, bool causal) override;
  void attention_backward(const float* qkv, const float* out, const float* dout, const float* statistics,
                          float* dqkv, int batch, int seq, int heads, int kv_heads, int head_dim,
                          bool causal) override;
  void rotary(float* qkv, int batch, int seq, int heads, int kv_heads, int head_dim, float theta,
              bool inverse) override;

  void embedding_forward(const std::int32_t* tokens, const float* table, float* out, std::int64_t rows,
                         std::int64_t columns, std::int32_t first, std::int32_t count) override;
  void embedding_backward(const std::int32_t* tokens, const float* dout, float* dtable, std::int64_t rows,
                          std::int64_t columns, std::int32_t first, std::int32_t count) override;

  void loss_max(const float* logits, float* maximum, std::int64_t rows, std::int64_t columns) override;
  void loss_sum(const float* logits, const float* maximum, const std::int32_t* targets, float* sums,
                std::int64_t rows, std::int64_t columns, std::int32_t first) override;
  double loss_gradient(float* logits, const float* maximum, const float* sums, const std::int32_t* targets,
                       float scale, std::int64_t rows, std::int64_t columns, std::int32_t first) override;

  void sgd(float* weight, const float* gradient, std::size_t count, float rate) override;
  void momentum(float* weight, const float* gradient, float* velocity, std::size_t count, float rate,
                float momentum) override;
  void adam(float* weight, const float* gradient, float* first, float* second, std::size_t count, float rate,
            float beta1, float beta2, float epsilon, float weight_decay, std::int64_t step) override;

 private:
  using GemmKey = std::tuple<bool, bool, std::int64_t, std::int64_t, std::int64_t>;
  struct GemmPlan {
    cublasLtMatmulDesc_t operation = nullptr;
    cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
    cublasLtMatmulAlgo_t algorithm{};
  };
  const GemmPlan& gemm_plan(const GemmKey& key);
  double read_scalar();  // the accumulator, which it resets

  int index_ = 0;
  cudaStream_t stream_ = nullptr;
  cublasLtHandle_t blas_ = nullptr;
  void* workspace_ = nullptr;
  double* scalar_ = nullptr;  // device memory
  std::map<GemmKey, GemmPlan> gemm_plans_;
  std::unordered_map<void*, std::size_t> sizes_;
  std::size_t live_ = 0;
  std::size_t peak_ = 0;
};

}  // namespace orrery::exec
