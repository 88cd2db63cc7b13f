#include <cblas.h>
#include <setjmp.h>
#include <ucontext.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <vector>

#include "cublasLt.h"
#include "cuda_runtime.h"

uint3 threadIdx;
uint3 blockIdx;
dim3 blockDim;
dim3 gridDim;

namespace cuda_emulation {
namespace {

constexpr std::size_t kStackBytes = 64 << 10;
constexpr int kLanes = 32;
constexpr unsigned kMaxThreads = 1024;

enum class State : std::uint8_t { ready, at_block_barrier, at_warp, done };

// Its context starts it once; from then on jumps go between it and the scheduler, which, unlike contexts,
// need no system call.
struct Fiber {
  ucontext_t context{};
  jmp_buf place;
  bool started = false;
  std::unique_ptr<char[]> stack{new char[kStackBytes]};
  uint3 index;
  State state = State::ready;
  std::uint64_t slot = 0;  // what this lane puts down
};

std::vector<Fiber> fibers;
jmp_buf scheduler;
std::size_t current = 0;
unsigned threads = 0;
const std::function<void()>* body = nullptr;
std::vector<char> shared;

void wait(State state) {
  Fiber& fiber = fibers[current];
  fiber.state = state;
  if (_setjmp(fiber.place) == 0) _longjmp(scheduler, 1);
}

// Thread after thread of the same number, of block after block and launch after launch.
void enter() {
  for (;;) {
    (*body)();
    wait(State::done);
  }
}

void resume(std::size_t thread) {
  current = thread;
  Fiber& fiber = fibers[thread];
  threadIdx = fiber.index;
  if (_setjmp(scheduler) != 0) return;
  if (fiber.started) _longjmp(fiber.place, 1);
  fiber.started = true;
  setcontext(&fiber.context);
}

// Lets every warp that has met go on, else the block; false: nobody can.
bool release() {
  bool any = false;
  for (unsigned first = 0; first < threads; first += kLanes) {
    const unsigned end = std::min(threads, first + kLanes);
    unsigned met = 0;
    unsigned left = 0;
    for (unsigned t = first; t < end; ++t) {
      met += fibers[t].state == State::at_warp ? 1 : 0;
      left += fibers[t].state == State::done ? 1 : 0;
    }
    if (met > 0 && left > 0) throw std::logic_error("a lane has left a warp that shuffles");
    if (met < end - first) continue;
    for (unsigned t = first; t < end; ++t) fibers[t].state = State::ready;
    any = true;
  }
  if (any) return true;
  for (unsigned t = 0; t < threads; ++t)
    if (fibers[t].state == State::at_warp) return false;
  for (unsigned t = 0; t < threads; ++t)
    if (fibers[t].state == State::at_block_barrier) {
      fibers[t].state = State::ready;
      any = true;
    }
  return any;
}

bool all_done() {
  for (unsigned t = 0; t < threads; ++t)
    if (fibers[t].state != State::done) return false;
  return true;
}

void make_fibers() {
  if (fibers.empty()) fibers.reserve(kMaxThreads);  // they stay where they are
  while (fibers.size() < threads) {
    Fiber& fiber = fibers.emplace_back();
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.get();
    fiber.context.uc_stack.ss_size = kStackBytes;
    makecontext(&fiber.context, enter, 0);
  }
}

void run_block() {
  for (unsigned t = 0; t < threads; ++t) {
    Fiber& fiber = fibers[t];
    fiber.index = {t % blockDim.x, t / blockDim.x % blockDim.y, t / blockDim.x / blockDim.y};
    fiber.state = State::ready;
  }
  do {
    for (unsigned t = 0; t < threads; ++t)
      if (fibers[t].state == State::ready) resume(t);
    if (all_done()) return;
  } while (release());
  throw std::logic_error("threads of a block wait for each other at unlike places");
}

}  // namespace

void run(dim3 grid, dim3 block, std::size_t shared_bytes, const std::function<void()>& thread) {
  threads = block.x * block.y * block.z;
  if (threads == 0 || threads > kMaxThreads || grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.y > 65535 ||
      grid.z > 65535)
    throw std::logic_error("a launch that CUDA would refuse");
  make_fibers();
  body = &thread;
  blockDim = block;
  gridDim = grid;
  for (unsigned z = 0; z < grid.z; ++z)
    for (unsigned y = 0; y < grid.y; ++y)
      for (unsigned x = 0; x < grid.x; ++x) {
        blockIdx = {x, y, z};
        shared.assign(shared_bytes, '\xff');  // not numbers: what is read before it is written shows
        shared.shrink_to_fit();
        run_block();
      }
}

void* shared_memory() {
  return shared.data();
}

void block_barrier() {
  wait(State::at_block_barrier);
}

void warp_barrier() {
  wait(State::at_warp);
}

int lane() {
  return static_cast<int>(current % kLanes);
}

std::uint64_t exchange(std::uint64_t value, int source_lane) {
  fibers[current].slot = value;
  const std::size_t source = current / kLanes * kLanes + static_cast<std::size_t>(source_lane);
  wait(State::at_warp);
  const std::uint64_t taken = fibers[source].slot;
  wait(State::at_warp);  // before anybody puts down the next
  return taken;
}

}  // namespace cuda_emulation

namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

const char* cudaGetErrorString(cudaError_t code) {
  return code == cudaErrorMemoryAllocation ? "out of memory" : code == cudaSuccess ? "no error" : "invalid";
}
cudaError_t cudaGetLastError() {
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int) {
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  std::strcpy(properties->name, "CUDA emulated on a processor");
  return cudaSuccess;
}
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t*, int) {
  return cudaSuccess;
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) {
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t*, unsigned) {
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t) {
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) {
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** data, std::size_t bytes) {
  // CUDA aligns to 256 bytes; the memory is what was there before.
  *data = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  if (!*data) return cudaErrorMemoryAllocation;
  std::memset(*data, 0xff, bytes);
  return cudaSuccess;
}
cudaError_t cudaFree(void* data) {
  std::free(data);
  return cudaSuccess;
}
cudaError_t cudaMallocAsync(void** data, std::size_t bytes, cudaStream_t) {
  return cudaMalloc(data, bytes);
}
cudaError_t cudaFreeAsync(void* data, cudaStream_t) {
  return cudaFree(data);
}
cudaError_t cudaMemset(void* data, int value, std::size_t bytes) {
  std::memset(data, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* data, int value, std::size_t bytes, cudaStream_t) {
  return cudaMemset(data, value, bytes);
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t) {
  if (bytes > 0) std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                              std::size_t width, std::size_t height, cudaMemcpyKind, cudaStream_t) {
  if (width > to_pitch || width > from_pitch) return cudaErrorInvalidValue;
  for (std::size_t row = 0; row < height; ++row)
    std::memcpy(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(from) + row * from_pitch,
                width);
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = new cuda_emulated_event;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  event->seconds = now();
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t) {
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  *milliseconds = static_cast<float>(1e3 * (end->seconds - begin->seconds));
  return cudaSuccess;
}

const char* cublasLtGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS ? "success" : "invalid value";
}
cublasStatus_t cublasLtCreate(cublasLtHandle_t*) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* product, cublasComputeType_t, cudaDataType_t) {
  *product = new cublas_emulated_product;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product) {
  delete product;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product,
                                              cublasLtMatmulDescAttributes_t attribute, const void* value,
                                              std::size_t bytes) {
  if (bytes != sizeof(cublasOperation_t)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(attribute == CUBLASLT_MATMUL_DESC_TRANSA ? &product->a : &product->b, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t, std::uint64_t rows,
                                          std::uint64_t columns, std::int64_t stride) {
  if (stride < static_cast<std::int64_t>(rows)) return CUBLAS_STATUS_INVALID_VALUE;
  *layout = new cublas_emulated_layout{rows, columns, stride};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t*) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t,
                                                    cublasLtMatmulPreferenceAttributes_t, const void*,
                                                    std::size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatmulPreference_t, int,
                                              cublasLtMatmulHeuristicResult_t*, int* found) {
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t product, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void*,
                              cublasLtMatrixLayout_t, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t*, void*, std::size_t, cudaStream_t) {
  const bool a_turned = product->a == CUBLAS_OP_T;
  const bool b_turned = product->b == CUBLAS_OP_T;
  const std::uint64_t m = a_turned ? a_layout->columns : a_layout->rows;
  const std::uint64_t k = a_turned ? a_layout->rows : a_layout->columns;
  const std::uint64_t n = b_turned ? b_layout->rows : b_layout->columns;
  if ((b_turned ? b_layout->columns : b_layout->rows) != k || d_layout->rows != m || d_layout->columns != n)
    return CUBLAS_STATUS_INVALID_VALUE;
  cblas_sgemm(CblasColMajor, a_turned ? CblasTrans : CblasNoTrans, b_turned ? CblasTrans : CblasNoTrans,
              static_cast<int>(m), static_cast<int>(n), static_cast<int>(k),
              *static_cast<const float*>(alpha), static_cast<const float*>(a),
              static_cast<int>(a_layout->stride), static_cast<const float*>(b),
              static_cast<int>(b_layout->stride), *static_cast<const float*>(beta), static_cast<float*>(d),
              static_cast<int>(d_layout->stride));
  return CUBLAS_STATUS_SUCCESS;
}
