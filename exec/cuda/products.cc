#include "exec/cuda/products.h"

#include <fmt/format.h>

#include "base/error.h"
#include "exec/cuda/check.h"

namespace orrery::exec {
namespace {

constexpr std::size_t kWorkspaceBytes = 64U << 20;  // what cuBLASLt's heuristics ask for on Hopper and later

cudaDataType_t data_type(DType type) {
  return type == DType::bf16 ? CUDA_R_16BF : type == DType::fp16 ? CUDA_R_16F : CUDA_R_32F;
}

// Of all matrices of a batch, in bytes; at most what cuBLASLt asks about.
unsigned alignment_of(const void* data, std::int64_t next, int element_bytes) {
  constexpr std::uintptr_t kMost = 256;
  const auto bits = reinterpret_cast<std::uintptr_t>(data) |
                    static_cast<std::uintptr_t>(next) * static_cast<std::uintptr_t>(element_bytes) | kMost;
  return static_cast<unsigned>(bits & (~bits + 1));
}

}  // namespace

Products::Products() {
  ORRERY_CUBLAS(cublasLtCreate(&blas_));
  ORRERY_CUDA(cudaMalloc(&workspace_, kWorkspaceBytes));
}

Products::~Products() {
  for (auto& [key, plan] : plans_) {
    cublasLtMatrixLayoutDestroy(plan.a);
    cublasLtMatrixLayoutDestroy(plan.b);
    cublasLtMatrixLayoutDestroy(plan.c);
    cublasLtMatmulDescDestroy(plan.operation);
  }
  cudaFree(workspace_);
  cublasLtDestroy(blas_);
}

// cuBLASLt is column-major: row-major c = op(a) op(b) is column-major c' = op(b)' op(a)', so the operands
// swap.
Products::Plan Products::described(const Key& key) {
  Plan plan;
  ORRERY_CUBLAS(cublasLtMatmulDescCreate(
      &plan.operation, key.type == DType::tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
      CUDA_R_32F));
  const auto turn = [&](cublasLtMatmulDescAttributes_t attribute, bool transposed) {
    const cublasOperation_t value = transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    ORRERY_CUBLAS(cublasLtMatmulDescSetAttribute(plan.operation, attribute, &value, sizeof value));
  };
  turn(CUBLASLT_MATMUL_DESC_TRANSA, key.transpose_b);
  turn(CUBLASLT_MATMUL_DESC_TRANSB, key.transpose_a);
  if (key.bias_alignment > 0) {
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    ORRERY_CUBLAS(cublasLtMatmulDescSetAttribute(plan.operation, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                                 sizeof epilogue));
  }
  const auto layout = [&](cublasLtMatrixLayout_t* out, cudaDataType_t type, const Shape& shape) {
    ORRERY_CUBLAS(cublasLtMatrixLayoutCreate(out, type, static_cast<std::uint64_t>(shape.columns),
                                             static_cast<std::uint64_t>(shape.rows), shape.stride));
    if (key.batch == 1) return;
    const std::int32_t count = key.batch;
    ORRERY_CUBLAS(
        cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count));
    ORRERY_CUBLAS(cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                   &shape.next, sizeof shape.next));
  };
  layout(&plan.a, data_type(key.type), key.b);
  layout(&plan.b, data_type(key.type), key.a);
  layout(&plan.c, data_type(key.result_type), key.c);
  return plan;
}

void Products::set_bias(const Plan& plan, const void* bias) {
  ORRERY_CUBLAS(cublasLtMatmulDescSetAttribute(plan.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                               sizeof(const void*)));
}

const Products::Plan& Products::plan_of(const Key& key, const void* bias) {
  const auto known = plans_.find(key);
  if (known != plans_.end()) return known->second;
  Plan plan = described(key);
  if (bias != nullptr) set_bias(plan, bias);  // the heuristics look at its alignment
  cublasLtMatmulPreference_t preference = nullptr;
  ORRERY_CUBLAS(cublasLtMatmulPreferenceCreate(&preference));
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    ORRERY_CUBLAS(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value));
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
  // Unless told, it takes them to be aligned to 256 bytes; a weight begins where the one before it ends.
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.b.alignment);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.a.alignment);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.c.alignment);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.c.alignment);
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(blas_, plan.operation, plan.a, plan.b, plan.c,
                                                               plan.c, preference, 1, &result, &found);
  cublasLtMatmulPreferenceDestroy(preference);
  if (status != CUBLAS_STATUS_NOT_SUPPORTED) ORRERY_CUBLAS(status);
  plan.known = status == CUBLAS_STATUS_SUCCESS && found > 0;
  plan.algorithm = result.algo;
  return plans_.emplace(key, plan).first->second;
}

Products::Key Products::key_of(DType type, const Factor& a, const Factor& b, const Result& c) {
  const auto shape = [](const auto& matrix, int element_bytes) {
    return Shape{matrix.rows, matrix.columns, matrix.stride, matrix.next,
                 alignment_of(matrix.data, matrix.next, element_bytes)};
  };
  const int factor_bytes = data_type(type) == CUDA_R_32F ? 4 : 2;
  return {type,
          c.type,
          a.transposed,
          b.transposed,
          shape(a, factor_bytes),
          shape(b, factor_bytes),
          shape(c, bytes_of(c.type))};
}

void Products::run(const Plan& plan, const Factor& a, const Factor& b, const Result& c, float alpha,
                   float beta, cudaStream_t stream) {
  ORRERY_CUBLAS(cublasLtMatmul(blas_, plan.operation, &alpha, b.data, plan.a, a.data, plan.b, &beta, c.data,
                               plan.c, c.data, plan.c, &plan.algorithm, workspace_, kWorkspaceBytes, stream));
}

void Products::multiply(DType type, const Factor& a, const Factor& b, const Result& c, float alpha,
                        float beta, int batch, cudaStream_t stream) {
  Key key = key_of(type, a, b, c);
  key.batch = batch;
  const Plan& plan = plan_of(key, nullptr);
  if (!plan.known)
    throw InternalError(fmt::format("cuBLASLt has no algorithm for {} x {} of {} x {} in {}", c.rows,
                                    c.columns, a.rows, a.columns, std::string(name_of(type))));
  run(plan, a, b, c, alpha, beta, stream);
}

bool Products::multiply_and_add(DType type, const Factor& a, const Factor& b, const void* bias,
                                const Result& c, cudaStream_t stream) {
  Key key = key_of(type, a, b, c);
  key.bias_alignment = alignment_of(bias, 0, bytes_of(c.type));
  const Plan& plan = plan_of(key, bias);
  if (!plan.known) {
    multiply(type, a, b, c, 1, 0, 1, stream);
    return false;
  }
  set_bias(plan, bias);
  run(plan, a, b, c, 1, 0, stream);
  return true;
}

}  // namespace orrery::exec
