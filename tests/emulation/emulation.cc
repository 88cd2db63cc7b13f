#include <cblas.h>
#include <setjmp.h>
#include <ucontext.h>

#include <array>
#include <chrono>
#include <cstring>
#include <deque>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "cublasLt.h"
#include "cuda_runtime.h"
#include "exec/cuda/two_bytes.h"

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
  std::uint64_t slots[2] = {};  // what this lane puts down, now and before
  unsigned exchanges = 0;
  std::deque<std::vector<std::pair<void*, const void*>>> copies;  // by group; the last is not ended
};

std::vector<Fiber> fibers;
jmp_buf scheduler;
std::size_t current = 0;
unsigned threads = 0;
bool backwards = false;
const std::function<void()>* body = nullptr;
std::vector<char> shared;
// What each warp's lanes put down, by turns in one of two places (see exchange()).
std::vector<std::array<std::array<Words, kLanes>, 2>> gathered(kMaxThreads / kLanes);

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

void no_copies_left() {
  for (unsigned t = 0; t < threads; ++t)
    for (const auto& group : fibers[t].copies)
      if (!group.empty()) throw std::logic_error("a block ends with copies under way");
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
    fiber.exchanges = 0;
    fiber.copies.assign(1, {});
  }
  // Every other block the other way round: what one thread leaves to another without a barrier between them
  // shows.
  backwards = !backwards;
  do {
    for (unsigned i = 0; i < threads; ++i) {
      const unsigned t = backwards ? threads - 1 - i : i;
      if (fibers[t].state == State::ready) resume(t);
    }
    if (all_done()) return no_copies_left();
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

// Whoever goes on puts the next down in the other place, and cannot come to the one after that before all
// have met again.
std::uint64_t exchange(std::uint64_t value, int source_lane) {
  const unsigned place = fibers[current].exchanges++ % 2;
  fibers[current].slots[place] = value;
  const std::size_t source = current / kLanes * kLanes + static_cast<std::size_t>(source_lane);
  wait(State::at_warp);
  return fibers[source].slots[place];
}

const Words* gather(const unsigned (&mine)[6]) {
  const unsigned place = fibers[current].exchanges++ % 2;
  std::array<Words, kLanes>& of_warp = gathered[current / kLanes][place];
  std::memcpy(of_warp[current % kLanes].word, mine, sizeof mine);
  wait(State::at_warp);
  return of_warp.data();
}

void copy_later(void* to, const void* from) {
  fibers[current].copies.back().emplace_back(to, from);
}

void end_group() {
  fibers[current].copies.emplace_back();
}

void wait_for_groups(std::size_t left) {
  auto& groups = fibers[current].copies;
  for (; groups.size() - 1 > left; groups.pop_front())
    for (const auto& [to, from] : groups.front()) std::memcpy(to, from, 16);
}

}  // namespace cuda_emulation

// Kernels and copies are done when they are asked for: only enqueue()'s work is ever waited for.
struct cuda_emulated_stream {
  struct Work {
    std::function<void()> start;
    std::function<bool()> done;
    bool started = false;
  };
  std::deque<Work> waiting;
  std::uint64_t issued = 0;
  std::uint64_t finished = 0;
};

// What a stream was asked for while it was captured, and memory that it released in the meantime.
struct cuda_emulated_graph {
  std::vector<std::function<void()>> work;
  std::vector<void*> released;
  int users = 1;
};

namespace {

cuda_emulated_graph* captured = nullptr;
std::set<cuda_emulated_stream*> streams;
std::map<const char*, std::size_t> allocated;

// All of them: a device goes on by itself.
void progress() {
  for (cuda_emulated_stream* stream : streams)
    while (!stream->waiting.empty()) {
      auto& work = stream->waiting.front();
      if (!std::exchange(work.started, true)) work.start();
      if (!work.done()) break;
      stream->waiting.pop_front();
      ++stream->finished;
    }
}

void wait_for_others() {
  progress();
  std::this_thread::yield();
}

bool reached(const cuda_emulated_stream* stream, std::uint64_t position) {
  return !stream || stream->finished >= position;
}

void release_graph(cuda_emulated_graph* graph) {
  if (--graph->users > 0) return;
  for (void* data : graph->released) cudaFree(data);
  delete graph;
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

void cuda_emulation::enqueue(cudaStream_t stream, std::function<void()> start, std::function<bool()> done) {
  stream->waiting.push_back({std::move(start), std::move(done)});
  ++stream->issued;
  progress();
}

bool cuda_emulation::is_device_memory(const void* data, std::size_t bytes) {
  const auto* first = static_cast<const char*>(data);
  const auto behind = allocated.upper_bound(first);
  if (behind == allocated.begin()) return false;
  const auto [begin, size] = *std::prev(behind);
  return first + bytes <= begin + size;
}

void cuda_emulation::submit(std::function<void()> work) {
  if (captured)
    captured->work.push_back(std::move(work));
  else
    work();
}

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
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = cuda_emulation::kSharedBytes;
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
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = *streams.insert(new cuda_emulated_stream).first;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  streams.erase(stream);
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (captured) return cudaErrorStreamCaptureUnsupported;
  while (stream && !reached(stream, stream->issued)) wait_for_others();
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t event) {
  return cudaEventSynchronize(event);  // what the stream is given next is done at once
}
cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) {
  if (captured) return cudaErrorStreamCaptureUnsupported;
  captured = new cuda_emulated_graph;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* graph) {
  if (!captured) return cudaErrorInvalidValue;
  *graph = std::exchange(captured, nullptr);
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  ++graph->users;
  *executable = graph;
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t) {
  if (captured) return cudaErrorStreamCaptureUnsupported;
  for (const auto& work : executable->work) work();
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  release_graph(graph);
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  release_graph(executable);
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** data, std::size_t bytes) {
  // CUDA aligns to 256 bytes; the memory is what was there before. No byte more than asked for: a sanitizer
  // sees what lies behind.
  if (posix_memalign(data, 256, std::max<std::size_t>(bytes, 1)) != 0) return cudaErrorMemoryAllocation;
  std::memset(*data, 0xff, bytes);
  allocated[static_cast<const char*>(*data)] = bytes;
  return cudaSuccess;
}
cudaError_t cudaFree(void* data) {
  allocated.erase(static_cast<const char*>(data));
  std::free(data);
  return cudaSuccess;
}
cudaError_t cudaMallocAsync(void** data, std::size_t bytes, cudaStream_t) {
  return cudaMalloc(data, bytes);
}
cudaError_t cudaFreeAsync(void* data, cudaStream_t) {
  if (!captured) return cudaFree(data);
  captured->released.push_back(data);  // the graph's own: it is there whenever the graph runs
  return cudaSuccess;
}
cudaError_t cudaMemset(void* data, int value, std::size_t bytes) {
  std::memset(data, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* data, int value, std::size_t bytes, cudaStream_t) {
  cuda_emulation::submit([=] { std::memset(data, value, bytes); });
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t) {
  if (captured && kind != cudaMemcpyDeviceToDevice) return cudaErrorStreamCaptureUnsupported;
  if (bytes > 0) cuda_emulation::submit([=] { std::memcpy(to, from, bytes); });
  return cudaSuccess;
}
cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                              std::size_t width, std::size_t height, cudaMemcpyKind, cudaStream_t) {
  if (width > to_pitch || width > from_pitch) return cudaErrorInvalidValue;
  cuda_emulation::submit([=] {
    for (std::size_t row = 0; row < height; ++row)
      std::memcpy(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(from) + row * from_pitch,
                  width);
  });
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = new cuda_emulated_event;
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return cudaEventCreate(event);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (captured) return cudaErrorStreamCaptureUnsupported;
  event->seconds = now();
  event->stream = stream;
  event->position = stream ? stream->issued : 0;
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  progress();
  return reached(event->stream, event->position) ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  while (!reached(event->stream, event->position)) wait_for_others();
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
  void* to = attribute == CUBLASLT_MATMUL_DESC_TRANSA     ? static_cast<void*>(&product->a)
             : attribute == CUBLASLT_MATMUL_DESC_TRANSB   ? static_cast<void*>(&product->b)
             : attribute == CUBLASLT_MATMUL_DESC_EPILOGUE ? static_cast<void*>(&product->epilogue)
                                                          : static_cast<void*>(&product->bias);
  const std::size_t wanted =
      attribute == CUBLASLT_MATMUL_DESC_BIAS_POINTER ? sizeof product->bias : sizeof(std::int32_t);
  if (bytes != wanted) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(to, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t type,
                                          std::uint64_t rows, std::uint64_t columns, std::int64_t stride) {
  if (rows == 0 || columns == 0 || stride < static_cast<std::int64_t>(rows))
    return CUBLAS_STATUS_INVALID_VALUE;
  *layout = new cublas_emulated_layout{type, rows, columns, stride};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void* value,
                                                std::size_t bytes) {
  const bool count = attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT;
  if (bytes != (count ? sizeof layout->batch : sizeof layout->next)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(count ? static_cast<void*>(&layout->batch) : &layout->next, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new cublas_emulated_preference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, std::size_t bytes) {
  if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
    return bytes == sizeof(std::uint64_t) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
  if (bytes != sizeof(std::uint32_t)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&preference->alignment[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t product,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t preference, int,
                                              cublasLtMatmulHeuristicResult_t* results, int* found) {
  std::copy_n(preference->alignment, 4, results->algo.alignment);
  // What the bias that it is shown has, every bias is taken to have.
  const auto bias = reinterpret_cast<std::uintptr_t>(product->bias);
  if (bias != 0) results->algo.bias_alignment = std::min<std::uintptr_t>(256, bias & (~bias + 1));
  if (product->epilogue == CUBLASLT_EPILOGUE_BIAS && bias == 0) return CUBLAS_STATUS_NOT_SUPPORTED;
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

namespace {

float value_of(cudaDataType_t type, const void* data, std::size_t i) {
  if (type == CUDA_R_32F) return static_cast<const float*>(data)[i];
  const std::uint16_t bits = static_cast<const std::uint16_t*>(data)[i];
  return type == CUDA_R_16BF ? orrery::exec::kernels::from_bf16(bits)
                             : orrery::exec::kernels::from_fp16(bits);
}

void put_value(cudaDataType_t type, void* data, std::size_t i, float x) {
  if (type == CUDA_R_32F)
    static_cast<float*>(data)[i] = x;
  else
    static_cast<std::uint16_t*>(data)[i] =
        type == CUDA_R_16BF ? orrery::exec::kernels::to_bf16(x) : orrery::exec::kernels::to_fp16(x);
}

std::uint64_t bytes_of(cudaDataType_t type) {
  return type == CUDA_R_32F ? 4 : 2;
}

const void* matrix_of(const void* data, const cublas_emulated_layout& layout, int i) {
  return static_cast<const char*>(data) + static_cast<std::uint64_t>(i * layout.next) * bytes_of(layout.type);
}

// Column-major without gaps.
std::vector<float> packed(const void* data, const cublas_emulated_layout& layout) {
  std::vector<float> values;
  values.reserve(layout.rows * layout.columns);
  for (std::uint64_t column = 0; column < layout.columns; ++column)
    for (std::uint64_t row = 0; row < layout.rows; ++row)
      values.push_back(value_of(layout.type, data, column * static_cast<std::uint64_t>(layout.stride) + row));
  return values;
}

bool aligned(const void* data, unsigned alignment) {
  return reinterpret_cast<std::uintptr_t>(data) % alignment == 0;
}

// One call with all that it was told, which may have changed when a graph makes it again.
struct Matmul {
  cublas_emulated_product product;
  cublas_emulated_layout a_layout, b_layout, d_layout;
  cublasLtMatmulAlgo_t algorithm;
  float alpha, beta;
  const void *a, *b;
  void* d;
  bool run() const;
};

}  // namespace

bool Matmul::run() const {
  const bool a_turned = product.a == CUBLAS_OP_T;
  const bool b_turned = product.b == CUBLAS_OP_T;
  const std::uint64_t m = a_turned ? a_layout.columns : a_layout.rows;
  const std::uint64_t k = a_turned ? a_layout.rows : a_layout.columns;
  const std::uint64_t n = b_turned ? b_layout.rows : b_layout.columns;
  if ((b_turned ? b_layout.columns : b_layout.rows) != k || d_layout.rows != m || d_layout.columns != n ||
      a_layout.type != b_layout.type || (d_layout.type != CUDA_R_32F && d_layout.type != a_layout.type) ||
      a_layout.batch != d_layout.batch || b_layout.batch != d_layout.batch)
    return false;
  for (int i = 0; i < d_layout.batch; ++i) {
    const void* left_at = matrix_of(a, a_layout, i);
    const void* right_at = matrix_of(b, b_layout, i);
    void* to = const_cast<void*>(matrix_of(d, d_layout, i));
    if (!aligned(left_at, algorithm.alignment[0]) || !aligned(right_at, algorithm.alignment[1]) ||
        !aligned(to, algorithm.alignment[2]) || !aligned(to, algorithm.alignment[3]))
      return false;
    const std::vector<float> left = packed(left_at, a_layout);
    const std::vector<float> right = packed(right_at, b_layout);
    std::vector<float> result = beta == 0 ? std::vector<float>(m * n) : packed(to, d_layout);
    cblas_sgemm(CblasColMajor, a_turned ? CblasTrans : CblasNoTrans, b_turned ? CblasTrans : CblasNoTrans,
                static_cast<int>(m), static_cast<int>(n), static_cast<int>(k), alpha, left.data(),
                static_cast<int>(a_layout.rows), right.data(), static_cast<int>(b_layout.rows), beta,
                result.data(), static_cast<int>(m));
    const bool adds = product.epilogue == CUBLASLT_EPILOGUE_BIAS;
    if (adds && !aligned(product.bias, static_cast<unsigned>(algorithm.bias_alignment))) return false;
    for (std::uint64_t column = 0; column < n; ++column)
      for (std::uint64_t row = 0; row < m; ++row)
        put_value(d_layout.type, to, column * static_cast<std::uint64_t>(d_layout.stride) + row,
                  result[column * m + row] + (adds ? value_of(d_layout.type, product.bias, row) : 0));
  }
  return true;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t product, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void*, std::size_t, cudaStream_t) {
  if (c != d || c_layout != d_layout) return CUBLAS_STATUS_INVALID_VALUE;
  const Matmul call{*product,
                    *a_layout,
                    *b_layout,
                    *d_layout,
                    *algorithm,
                    *static_cast<const float*>(alpha),
                    *static_cast<const float*>(beta),
                    a,
                    b,
                    d};
  cuda_emulation::submit([call] {
    if (!call.run()) throw std::logic_error("a matrix product that cuBLASLt would refuse");
  });
  return CUBLAS_STATUS_SUCCESS;
}
