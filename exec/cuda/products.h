// Matrix products by cuBLASLt: the one place that knows it.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <compare>
#include <cstdint>
#include <map>

#include "base/dtype.h"

namespace orrery::exec {

// Rows are contiguous columns; strides in elements. In a batch of products the next matrix begins `next`
// elements further on.
struct Factor {
  const void* data = nullptr;  // fp32, or the two-byte type in which it is multiplied
  bool transposed = false;     // in the product; what follows is as it lies in memory
  std::int64_t rows = 0, columns = 0, stride = 0;
  std::int64_t next = 0;
};
struct Result {
  void* data = nullptr;
  DType type = DType::fp32;  // or the two-byte type in which is multiplied
  std::int64_t rows = 0, columns = 0, stride = 0;
  std::int64_t next = 0;
};

// The stride that lets tensor cores read rows of so many columns, of any type, sixteen bytes at once.
constexpr std::int64_t kEven = 8;
constexpr std::int64_t packed_stride(std::int64_t columns) {
  return (columns + kEven - 1) / kEven * kEven;
}

class Products {
 public:
  Products();
  ~Products();
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  // c = alpha * op(a) op(b) + beta * c, `batch` times, with factors of `type`: fp32, tf32 (held as fp32),
  // bf16 or fp16. Sums are fp32's. Nothing may be empty. beta == 0 never reads c.
  void multiply(DType type, const Factor& a, const Factor& b, const Result& c, float alpha, float beta,
                int batch, cudaStream_t stream);
  // c = op(a) op(b), and where cuBLASLt can do so in the same pass, `bias`, of the result's type, added to
  // each row of it: returns whether it was.
  [[nodiscard]] bool multiply_and_add(DType type, const Factor& a, const Factor& b, const void* bias,
                                      const Result& c, cudaStream_t stream);

 private:
  // A matrix but for its place.
  struct Shape {
    std::int64_t rows = 0, columns = 0, stride = 0, next = 0;
    unsigned alignment = 0;  // bytes
    auto operator<=>(const Shape&) const = default;
  };
  struct Key {
    DType type = DType::fp32, result_type = DType::fp32;
    bool transpose_a = false, transpose_b = false;
    Shape a, b, c;
    int batch = 1;
    unsigned bias_alignment = 0;  // 0: there is none
    auto operator<=>(const Key&) const = default;
  };
  struct Plan {
    cublasLtMatmulDesc_t operation = nullptr;
    cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
    cublasLtMatmulAlgo_t algorithm{};
    bool known = false;  // an algorithm for it
  };
  static Key key_of(DType type, const Factor& a, const Factor& b, const Result& c);
  static Plan described(const Key& key);
  static void set_bias(const Plan& plan, const void* bias);
  const Plan& plan_of(const Key& key, const void* bias);
  void run(const Plan& plan, const Factor& a, const Factor& b, const Result& c, float alpha, float beta,
           cudaStream_t stream);

  cublasLtHandle_t blas_ = nullptr;
  void* workspace_ = nullptr;
  std::map<Key, Plan> plans_;
};

}  // namespace orrery::exec
