#include "exec/cpu/gemm.h"

#include <cblas.h>
#include <dnnl.h>
#include <omp.h>

#include "base/error.h"

namespace orrery::exec::cpu {

// oneDNN's products are up to half again as fast as OpenBLAS's 0.3.21 (a tenth in the large ones of
// transformers, a quarter in attention's), but are generated for x86 alone: elsewhere they are plain loops.
#ifdef __x86_64__
constexpr bool kGenerated = true;
#else
constexpr bool kGenerated = false;
#endif

void one_thread() {
  openblas_set_num_threads(1);
  omp_set_num_threads(1);
}

void gemm(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, float alpha,
          const float* a, std::int64_t lda, const float* b, std::int64_t ldb, float beta, float* c,
          std::int64_t ldc) {
  // OpenBLAS has a way of its own for what is small, and for a single row.
  const bool small = m * n * k < 32 * 32 * 32 || m == 1;
  if (kGenerated && !small) {
    const dnnl_status_t status = dnnl_sgemm(transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', m, n, k, alpha,
                                            a, lda, b, ldb, beta, c, ldc);
    ORRERY_CHECK(status == dnnl_success, "oneDNN takes the product");
    return;
  }
  cblas_sgemm(CblasRowMajor, transpose_a ? CblasTrans : CblasNoTrans, transpose_b ? CblasTrans : CblasNoTrans,
              static_cast<blasint>(m), static_cast<blasint>(n), static_cast<blasint>(k), alpha, a,
              static_cast<blasint>(lda), b, static_cast<blasint>(ldb), beta, c, static_cast<blasint>(ldc));
}

}  // namespace orrery::exec::cpu
