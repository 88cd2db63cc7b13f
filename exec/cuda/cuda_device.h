// The layers' mathematics on one CUDA device: cuBLASLt for the matrix products
// (products.h), small kernels (kernels.h) for the rest.
#pragma once

#include <cuda_runtime.h>

#include <optional>
#include <unordered_map>
#include <vector>

#include "exec/cuda/products.h"
#include "exec/device/device.h"

namespace orrery::exec {

// GPUs that this process can use; 0 where there is no driver.
int cuda_devices();

// One compute stream; every call returns at once unless exec/device/device.h says that it synchronises.
// Memory comes from CUDA's stream-ordered pool, which keeps what is released, so that a training step does
// not allocate.
class CudaDevice final : public Device {
 public:
  // columns_bytes: of the columns of images that a convolution multiplies at once.
  explicit CudaDevice(int index, std::size_t columns_bytes = std::size_t{64} << 20);
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
  void copy(void* to, const void* from, std::size_t bytes) override;
  void copy_matrix(Numbers to, std::int64_t to_stride, ConstNumbers from, std::int64_t from_stride,
                   std::int64_t rows, std::int64_t columns) override;
  void transpose(ConstNumbers from, std::int64_t from_stride, Numbers to, std::int64_t to_stride,
                 std::int64_t batch, std::int64_t rows, std::int64_t columns) override;
  void synchronize() override;

  Mark mark() override;
  double seconds_of(Mark mark) override;
  void release_marks() override;
  bool records() const override { return true; }
  void begin_recording() override;
  Recording end_recording() override;
  void replay(Recording recording) override;

  void fill(Numbers data, std::size_t count, float value) override;
  void add(Numbers into, ConstNumbers from, std::size_t count) override;
  void scale(Numbers data, std::size_t count, float factor) override;
  void multiply(Numbers into, ConstNumbers by, std::size_t count) override;
  void softcap(float cap, Numbers x, Numbers slopes, std::size_t count) override;
  double sum_of_squares(const float* data, std::size_t count) override;

  DType held_as(DType type) const override { return bytes_of(type) == 2 ? type : DType::fp32; }
  void set_product_type(DType type) override { product_type_ = type; }
  void gemm(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, float alpha,
            ConstNumbers a, std::int64_t lda, ConstNumbers b, std::int64_t ldb, float beta, Numbers c,
            std::int64_t ldc) override;
  void linear(bool out_by_in, std::int64_t rows, std::int64_t out, std::int64_t in, ConstNumbers x,
              std::int64_t x_stride, ConstNumbers weight, const float* bias, Numbers y,
              std::int64_t y_stride) override;
  void add_bias(Numbers data, const float* bias, std::int64_t rows, std::int64_t columns,
                std::int64_t stride) override;
  void bias_gradient(ConstNumbers gradient, float* bias_gradient, std::int64_t rows, std::int64_t columns,
                     std::int64_t stride) override;
  void residual_forward(ConstNumbers branch, const float* bias, ConstNumbers stream, Numbers out,
                        std::int64_t rows, std::int64_t columns) override;

  void dropout(const Dropout& of, ConstNumbers x, Numbers y, std::int64_t rows,
               std::int64_t columns) override;
  void dropout_residual(const Dropout& of, ConstNumbers branch, const float* bias, ConstNumbers stream,
                        Numbers out, std::int64_t rows, std::int64_t columns) override;

  void norm_forward(NormKind kind, ConstNumbers x, const float* weight, const float* bias, Numbers y,
                    float* mean, float* inverse, std::int64_t rows, std::int64_t columns,
                    float epsilon) override;
  void norm_backward(NormKind kind, ConstNumbers dy, ConstNumbers x, const float* weight, const float* mean,
                     const float* inverse, Numbers dx, bool accumulate, float* dweight, float* dbias,
                     std::int64_t rows, std::int64_t columns) override;
  void activation_forward(Activation kind, bool gated, ConstNumbers x, Numbers y, std::int64_t rows,
                          std::int64_t columns) override;
  void activation_backward(Activation kind, bool gated, ConstNumbers x, ConstNumbers dy, Numbers dx,
                           std::int64_t rows, std::int64_t columns) override;

  void attention_forward(const AttentionSize& size, ConstNumbers qkv, Numbers out,
                         float* statistics) override;
  void attention_backward(const AttentionSize& size, ConstNumbers qkv, ConstNumbers out, ConstNumbers dout,
                          const float* statistics, Numbers dqkv) override;
  void attention_block_forward(const AttentionBlock& block, ConstNumbers qkv, ConstNumbers keys,
                               ConstNumbers values, Numbers out, float* statistics) override;
  void attention_block_backward(const AttentionBlock& block, ConstNumbers qkv, ConstNumbers keys,
                                ConstNumbers values, ConstNumbers out, ConstNumbers dout,
                                const float* statistics, Numbers dqkv, Numbers dkeys,
                                Numbers dvalues) override;
  void rotary(const AttentionSize& size, Numbers qkv, const RotaryAngles& angles, bool inverse) override;

  void embedding_forward(const std::int32_t* tokens, const float* table, Numbers out, std::int64_t rows,
                         std::int64_t columns, std::int32_t first, std::int32_t count) override;
  void embedding_backward(const std::int32_t* tokens, ConstNumbers dout, float* dtable, std::int64_t rows,
                          std::int64_t columns, std::int32_t first, std::int32_t count) override;
  void positions_forward(const float* table, Numbers out, std::int64_t rows, std::int64_t columns,
                         int seq) override;
  void positions_backward(ConstNumbers dout, float* dtable, std::int64_t rows, std::int64_t columns,
                          int seq) override;

  void loss_max(ConstNumbers logits, float* maximum, std::int64_t rows, std::int64_t columns,
                std::int64_t stride) override;
  void loss_sum(Numbers logits, const float* maximum, const std::int32_t* targets, float* sums,
                std::int64_t rows, std::int64_t columns, std::int64_t stride, std::int32_t first) override;
  void loss_gradient(Numbers logits, const float* maximum, const float* sums, const std::int32_t* targets,
                     float scale, std::int64_t rows, std::int64_t columns, std::int64_t stride,
                     std::int32_t first, double* loss) override;

  void convolution_forward(const WindowSize& size, ConstNumbers x, const float* weight, const float* bias,
                           Numbers y) override;
  void convolution_backward_input(const WindowSize& size, ConstNumbers dy, const float* weight,
                                  Numbers dx) override;
  void convolution_backward_weight(const WindowSize& size, ConstNumbers x, ConstNumbers dy, float* dweight,
                                   float* dbias, bool accumulate) override;
  void pool_forward(const WindowSize& size, ConstNumbers x, Numbers y, std::int32_t* places) override;
  void pool_backward(const WindowSize& size, ConstNumbers dy, const std::int32_t* places,
                     Numbers dx) override;
  void batch_norm_forward(ConstNumbers x, const float* weight, const float* bias, Numbers y, float* mean,
                          float* inverse, float* variance, std::int64_t rows, std::int64_t channels,
                          std::int64_t pixels, float epsilon) override;
  void running_statistics(const float* mean, const float* variance, float* running_mean,
                          float* running_variance, std::int64_t channels, std::int64_t samples,
                          float momentum) override;
  void batch_norm_backward(ConstNumbers dy, ConstNumbers x, const float* weight, const float* mean,
                           const float* inverse, Numbers dx, float* dweight, float* dbias, std::int64_t rows,
                           std::int64_t channels, std::int64_t pixels) override;

  void gather_rows(ConstNumbers from, const std::int32_t* index, const float* scale, Numbers to,
                   std::int64_t rows, std::int64_t columns) override;
  void sum_rows(ConstNumbers from, const std::int32_t* index, const float* scale, Numbers to,
                std::int64_t rows, int per_row, std::int64_t columns, bool accumulate) override;
  void dot_rows(ConstNumbers a, ConstNumbers b, const std::int32_t* index, float* out, std::int64_t rows,
                int per_row, std::int64_t columns) override;

  void narrow(DType type, const float* from, std::uint16_t* to, std::size_t count, float scale,
              bool saturate) override;
  void widen(DType type, const std::uint16_t* from, float* to, std::size_t count, float scale) override;
  void round_to(DType type, float* data, std::size_t count) override;
  void quantize(const float* gradient, float* error, std::byte* payload, std::size_t count) override;
  void keep_largest(const float* gradient, float* error, std::byte* payload, std::size_t count,
                    std::size_t kept) override;
  void add_quantized(const std::byte* payload, float* gradient, std::size_t count) override;
  void add_largest(const std::byte* payload, float* gradient, std::size_t kept) override;

  void sgd(float* weight, const float* gradient, std::size_t count, float rate) override;
  void momentum(float* weight, const float* gradient, float* velocity, std::size_t count, float rate,
                float momentum) override;
  void adam(float* weight, const float* gradient, float* first, float* second, std::size_t count,
            const AdamConstants& constants, std::int64_t step) override;

 private:
  // In which is multiplied: the two-byte type that one of them has, or what fp32 words were said to be.
  DType product_type(ConstNumbers a, ConstNumbers b, ConstNumbers c) const;
  // A factor of a product in `type`: as it lies where tensor cores can read it so and `in_place` allows, else
  // packed and filled up with zeros, in memory to release.
  struct Operand {
    Factor factor;
    void* memory = nullptr;
  };
  Operand operand(DType type, ConstNumbers numbers, const Factor& shape, bool in_place);
  struct Matrix {
    ConstNumbers numbers;
    bool transposed;
    std::int64_t stride;
  };
  // Calls multiply(type, left, right, result, its first column) for each part of a product.
  template <class Multiply>
  void product(const Matrix& a, const Matrix& b, std::int64_t k, const Result& c, Multiply multiply);

  int index_;
  std::size_t columns_bytes_;
  DType product_type_ = DType::fp32;
  cudaStream_t stream_ = nullptr;
  std::optional<Products> products_;
  double* scalar_ = nullptr;  // device memory
  std::unordered_map<void*, std::size_t> sizes_;
  std::vector<cudaEvent_t> marks_;  // in use, then free ones for reuse
  std::size_t marks_used_ = 0;
  std::vector<cudaGraphExec_t> recordings_;
  cudaEvent_t origin_ = nullptr;  // recorded when the steady clock read origin_s_
  double origin_s_ = 0;
  std::size_t live_ = 0;
  std::size_t peak_ = 0;
};

}  // namespace orrery::exec
