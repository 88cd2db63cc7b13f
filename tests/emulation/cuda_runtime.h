// Enough of CUDA on a processor to run exec/cuda's own kernels and device without a GPU: the very sources,
// compiled as C++. Every thread of a block is a fiber; barriers and shuffles meet as the hardware's do, and
// threads that can never meet, or shuffles that a lane has left, are errors. Memory is the host's, so that
// AddressSanitizer sees what kernels read and write. What it cannot show: speed, races between blocks,
// and cuBLASLt's and the compiler's own behaviour.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>

#define __global__
#define __device__
#define __host__
#define __launch_bounds__(...)
#define __shared__ static  // blocks run one after another

struct uint3 {
  unsigned x = 0, y = 0, z = 0;
};
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

extern uint3 threadIdx;  // of the fiber that runs
extern uint3 blockIdx;
extern dim3 blockDim;
extern dim3 gridDim;

struct cuda_emulated_stream;

namespace cuda_emulation {

constexpr int kSharedBytes = 163 * 1024;  // that a block may ask for

void run(dim3 grid, dim3 block, std::size_t shared_bytes, const std::function<void()>& thread);
// Work that goes on by itself, behind what the stream was given before: `start` begins it, `done` asks.
void enqueue(cuda_emulated_stream* stream, std::function<void()> start, std::function<bool()> done);
// Does the work, or keeps it for the graph that the stream is captured into.
void submit(std::function<void()> work);
// Whether all of it was allocated on the device: NCCL reads nothing else for sure.
bool is_device_memory(const void* data, std::size_t bytes);
void* shared_memory();
void block_barrier();
// All lanes of a warp put eight bytes down, then each takes those of another lane.
std::uint64_t exchange(std::uint64_t value, int source_lane);
void warp_barrier();
int lane();
// All lanes of a warp put six words down, then each may read those of all, by lane, until it puts down
// others.
struct Words {
  unsigned word[6];
};
const Words* gather(const unsigned (&mine)[6]);
// Sixteen bytes that this thread has asked for arrive when it has waited for all but its latest groups, not
// before.
void copy_later(void* to, const void* from);
void end_group();
void wait_for_groups(std::size_t left);

template <class T>
T shuffle(T value, int source) {
  static_assert(sizeof(T) <= sizeof(std::uint64_t));
  std::uint64_t bits = 0;
  __builtin_memcpy(&bits, &value, sizeof(T));
  bits = exchange(bits, source);
  __builtin_memcpy(&value, &bits, sizeof(T));
  return value;
}

}  // namespace cuda_emulation

inline void __syncthreads() {
  cuda_emulation::block_barrier();
}
inline void __syncwarp() {
  cuda_emulation::warp_barrier();
}
template <class T>
T __shfl_sync(unsigned, T value, int source) {
  return cuda_emulation::shuffle(value, source % 32);
}
template <class T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  return cuda_emulation::shuffle(value, cuda_emulation::lane() ^ mask);
}
template <class T>
T __shfl_down_sync(unsigned, T value, unsigned offset) {
  const int source = cuda_emulation::lane() + static_cast<int>(offset);
  return cuda_emulation::shuffle(value, source < 32 ? source : cuda_emulation::lane());
}
template <class T>
T __shfl_up_sync(unsigned, T value, unsigned offset) {
  const int source = cuda_emulation::lane() - static_cast<int>(offset);
  return cuda_emulation::shuffle(value, source >= 0 ? source : cuda_emulation::lane());
}
template <class T, class U>
T atomicAdd(T* address, U value) {
  const T before = *address;
  *address = before + static_cast<T>(value);
  return before;
}
using std::max;
using std::min;
inline float rsqrtf(float x) {
  return 1.0F / std::sqrt(x);
}
inline unsigned __float_as_uint(float x) {
  unsigned bits = 0;
  __builtin_memcpy(&bits, &x, sizeof bits);
  return bits;
}
inline float __uint_as_float(unsigned bits) {
  float x = 0;
  __builtin_memcpy(&x, &bits, sizeof x);
  return x;
}

// ---- The runtime's calls that exec/cuda makes ----

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorNotReady = 600,
  cudaErrorStreamCaptureUnsupported = 900
};
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal = 1 };
enum cudaMemcpyKind { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2, cudaMemcpyDeviceToDevice = 3 };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
enum cudaDeviceAttr { cudaDevAttrMaxSharedMemoryPerBlockOptin = 97 };
enum cudaMemPoolAttr { cudaMemPoolAttrReleaseThreshold = 4 };
constexpr unsigned cudaStreamNonBlocking = 1;
constexpr unsigned cudaEventDisableTiming = 2;

using cudaStream_t = cuda_emulated_stream*;
using cudaMemPool_t = struct cuda_emulated_pool*;
struct cuda_emulated_event {
  double seconds = 0;
  cudaStream_t stream = nullptr;
  std::uint64_t position = 0;  // how much work the stream had when it was recorded
};
using cudaEvent_t = cuda_emulated_event*;
using cudaGraph_t = struct cuda_emulated_graph*;
using cudaGraphExec_t = cudaGraph_t;
struct cudaDeviceProp {
  char name[256] = {};
};

const char* cudaGetErrorString(cudaError_t code);
cudaError_t cudaGetLastError();
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device);
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaMalloc(void** data, std::size_t bytes);
cudaError_t cudaFree(void* data);
cudaError_t cudaMallocAsync(void** data, std::size_t bytes, cudaStream_t stream);
cudaError_t cudaFreeAsync(void* data, cudaStream_t stream);
cudaError_t cudaMemset(void* data, int value, std::size_t bytes);
cudaError_t cudaMemsetAsync(void* data, int value, std::size_t bytes, cudaStream_t stream);
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                              std::size_t width, std::size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream);
cudaError_t cudaEventCreate(cudaEvent_t* event);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable);
// What a block of an A100 may have; of 8.6 and 8.9 it is 99 KiB.
template <class Kernel>
cudaError_t cudaFuncSetAttribute(Kernel, cudaFuncAttribute, int bytes) {
  return bytes <= cuda_emulation::kSharedBytes ? cudaSuccess : cudaErrorInvalidValue;
}
