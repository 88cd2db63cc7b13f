// Row-major products: c = alpha op(a) op(b) + beta c; what c held is not read where beta is 0.
#pragma once

#include <cstdint>

namespace orrery::exec::cpu {

// On the calling thread alone, once one_thread() was called in the process.
void gemm(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, float alpha,
          const float* a, std::int64_t lda, const float* b, std::int64_t ldb, float beta, float* c,
          std::int64_t ldc);
void one_thread();

}  // namespace orrery::exec::cpu
