// Errors of CUDA libraries become exceptions that name the call and the place.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>

namespace orrery::exec {

// Throws InternalError. Out of line: nvcc cannot compile fmt's consteval format strings.
[[noreturn]] void fail_cuda(const char* reason, const char* call, const char* file, int line);

inline void check_cuda(cudaError_t code, const char* call, const char* file, int line) {
  if (code != cudaSuccess) fail_cuda(cudaGetErrorString(code), call, file, line);
}

inline void check_cublas(cublasStatus_t code, const char* call, const char* file, int line) {
  if (code != CUBLAS_STATUS_SUCCESS) fail_cuda(cublasLtGetStatusString(code), call, file, line);
}

}  // namespace orrery::exec

#define ORRERY_CUDA(call) ::orrery::exec::check_cuda((call), #call, __FILE__, __LINE__)
#define ORRERY_CUBLAS(call) ::orrery::exec::check_cublas((call), #call, __FILE__, __LINE__)
