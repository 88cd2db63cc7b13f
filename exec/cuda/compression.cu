// Gradients as they travel compressed (exec/device/compressed.h), with what they leave out.
#include <cstring>

#include "exec/cuda/block_reduce.h"
#include "exec/cuda/each.h"
#include "exec/cuda/kernels.h"
#include "exec/device/compressed.h"

namespace orrery::exec::kernels {
namespace {

// Scales stand behind `count` bytes of values: of any alignment.
__device__ float scale_at(const std::byte* payload, std::size_t count, std::size_t block) {
  float scale = 0;
  memcpy(&scale, payload + count + block * sizeof(float), sizeof(float));
  return scale;
}

// One thread block for each kQuantizedBlock elements.
__global__ void quantize_kernel(const float* gradient, float* error, std::byte* payload, std::size_t count) {
  const std::size_t begin = blockIdx.x * kQuantizedBlock;
  const std::size_t end = begin + kQuantizedBlock < count ? begin + kQuantizedBlock : count;
  float largest = 0;
  for (std::size_t i = begin + threadIdx.x; i < end; i += kReducingThreads) {
    error[i] += gradient[i];
    largest = fmaxf(largest, fabsf(error[i]));
  }
  const float scale = reduce_block<true>(largest) / 127.0F;
  const float inverse = scale > 0 ? 1 / scale : 0;
  for (std::size_t i = begin + threadIdx.x; i < end; i += kReducingThreads) {
    const float q = fminf(fmaxf(rintf(error[i] * inverse), -127.0F), 127.0F);
    payload[i] = static_cast<std::byte>(static_cast<std::int8_t>(q));
    error[i] -= q * scale;
  }
  if (threadIdx.x == 0) memcpy(payload + count + blockIdx.x * sizeof(float), &scale, sizeof(float));
}

// ---- The largest of all ----
//
// Their magnitudes' bits, as whole numbers, order as they do: four passes over eight bits each find the
// smallest that travels, and how many equal to it do (those that come first). Then tiles count what they
// keep, the counts add up to where each tile begins, and every tile writes its own in order.

constexpr int kDigits = 256;
constexpr std::size_t kTileElements = 4 * kReducingThreads;  // of a thread block

struct Selection {
  unsigned prefix = 0;     // bits that are known of the smallest
  unsigned mask = 0;       // which bits those are
  unsigned remaining = 0;  // how many are wanted of those that begin with the prefix
};

struct Kept {
  unsigned larger = 0;
  unsigned equal = 0;
};

struct Scratch {
  Selection* selection;
  unsigned* histogram;  // kDigits
  Kept* before;         // by tile: what it keeps, then what the tiles before it keep
  std::size_t tiles;
};

__host__ __device__ std::size_t tiles_of(std::size_t count) {
  return (count + kTileElements - 1) / kTileElements;
}

Scratch scratch_of(void* memory, std::size_t count) {
  auto* selection = static_cast<Selection*>(memory);
  auto* histogram = reinterpret_cast<unsigned*>(selection + 1);
  return {selection, histogram, reinterpret_cast<Kept*>(histogram + kDigits), tiles_of(count)};
}

__device__ unsigned magnitude(float x) {
  return __float_as_uint(x) & 0x7fffffffU;
}

__global__ void begin_selection_kernel(Scratch s, unsigned kept) {
  if (threadIdx.x == 0) *s.selection = {0, 0, kept};
  s.histogram[threadIdx.x] = 0;
}

__global__ void histogram_kernel(const float* values, std::size_t count, Scratch s, int shift) {
  __shared__ unsigned digits[kDigits];
  digits[threadIdx.x] = 0;
  __syncthreads();
  const Selection known = *s.selection;
  for (std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x; i < count;
       i += static_cast<std::size_t>(gridDim.x) * blockDim.x) {
    const unsigned bits = magnitude(values[i]);
    if ((bits & known.mask) == known.prefix) atomicAdd(&digits[bits >> shift & (kDigits - 1)], 1U);
  }
  __syncthreads();
  if (digits[threadIdx.x] > 0) atomicAdd(&s.histogram[threadIdx.x], digits[threadIdx.x]);
}

// One thread: the digit in which the smallest lies, from the largest down.
__global__ void select_digit_kernel(Scratch s, int shift) {
  Selection known = *s.selection;
  int digit = kDigits - 1;
  while (digit > 0 && s.histogram[digit] < known.remaining) known.remaining -= s.histogram[digit--];
  known.prefix |= static_cast<unsigned>(digit) << shift;
  known.mask |= static_cast<unsigned>(kDigits - 1) << shift;
  *s.selection = known;
  for (int i = 0; i < kDigits; ++i) s.histogram[i] = 0;
}

// What a thread's four elements in a row hold.
__device__ Kept kept_of_thread(const float* values, std::size_t begin, std::size_t count, unsigned smallest) {
  Kept kept{0, 0};
  for (std::size_t i = begin; i < begin + 4 && i < count; ++i) {
    const unsigned bits = magnitude(values[i]);
    kept.larger += bits > smallest ? 1 : 0;
    kept.equal += bits == smallest ? 1 : 0;
  }
  return kept;
}

// What the threads before this one hold; `total`: all of the block.
__device__ Kept exclusive_sum(Kept mine, Kept* total) {
  __shared__ Kept sums[kReducingThreads];
  __syncthreads();  // may still be read from the call before
  sums[threadIdx.x] = mine;
  __syncthreads();
  for (int reach = 1; reach < kReducingThreads; reach *= 2) {
    const Kept before = static_cast<int>(threadIdx.x) >= reach ? sums[threadIdx.x - reach] : Kept{0, 0};
    __syncthreads();
    sums[threadIdx.x].larger += before.larger;
    sums[threadIdx.x].equal += before.equal;
    __syncthreads();
  }
  *total = sums[kReducingThreads - 1];
  return {sums[threadIdx.x].larger - mine.larger, sums[threadIdx.x].equal - mine.equal};
}

__global__ void count_tiles_kernel(const float* values, std::size_t count, Scratch s) {
  const std::size_t begin = blockIdx.x * kTileElements + threadIdx.x * std::size_t{4};
  Kept total{0, 0};
  exclusive_sum(kept_of_thread(values, begin, count, s.selection->prefix), &total);
  if (threadIdx.x == 0) s.before[blockIdx.x] = total;
}

// One block: the tiles' counts become what stands before each.
__global__ void add_tiles_kernel(Scratch s) {
  Kept carried{0, 0};
  for (std::size_t first = 0; first < s.tiles; first += kReducingThreads) {
    const std::size_t tile = first + threadIdx.x;
    const Kept mine = tile < s.tiles ? s.before[tile] : Kept{0, 0};
    Kept total{0, 0};
    const Kept before = exclusive_sum(mine, &total);
    if (tile < s.tiles) s.before[tile] = {carried.larger + before.larger, carried.equal + before.equal};
    carried.larger += total.larger;
    carried.equal += total.equal;
  }
}

__global__ void write_kept_kernel(float* values, SparseEntry* entries, std::size_t count, Scratch s) {
  const Selection known = *s.selection;
  const std::size_t begin = blockIdx.x * kTileElements + threadIdx.x * std::size_t{4};
  Kept total{0, 0};
  Kept at = exclusive_sum(kept_of_thread(values, begin, count, known.prefix), &total);
  at.larger += s.before[blockIdx.x].larger;
  at.equal += s.before[blockIdx.x].equal;
  for (std::size_t i = begin; i < begin + 4 && i < count; ++i) {
    const unsigned bits = magnitude(values[i]);
    const bool larger = bits > known.prefix;
    const bool equal = bits == known.prefix;
    const unsigned equals_kept = at.equal < known.remaining ? at.equal : known.remaining;
    if (larger || (equal && at.equal < known.remaining)) {
      entries[at.larger + equals_kept] = {static_cast<std::int32_t>(i), values[i]};
      values[i] = 0;
    }
    at.larger += larger ? 1 : 0;
    at.equal += equal ? 1 : 0;
  }
}

}  // namespace

void quantize(const float* gradient, float* error, std::byte* payload, std::size_t count,
              cudaStream_t stream) {
  if (count > 0)
    launch(quantize_kernel, static_cast<unsigned>((count + kQuantizedBlock - 1) / kQuantizedBlock),
           kReducingThreads, 0, stream, gradient, error, payload, count);
}

void add_quantized(const std::byte* payload, float* gradient, std::size_t count, cudaStream_t stream) {
  each(count, stream, [=] __device__(std::size_t i) {
    const auto value = static_cast<float>(static_cast<std::int8_t>(payload[i]));
    gradient[i] += value * scale_at(payload, count, i / kQuantizedBlock);
  });
}

std::size_t keep_largest_scratch_bytes(std::size_t count) {
  return sizeof(Selection) + kDigits * sizeof(unsigned) + tiles_of(count) * sizeof(Kept);
}

void keep_largest(const float* gradient, float* error, std::byte* payload, std::size_t count,
                  std::size_t kept, void* memory, cudaStream_t stream) {
  Elementwise<float>::add(error, gradient, count, stream);
  if (kept == 0) return;
  const Scratch s = scratch_of(memory, count);
  const unsigned blocks = blocks_for(count) < 1024 ? blocks_for(count) : 1024;
  launch(begin_selection_kernel, 1, kDigits, 0, stream, s, static_cast<unsigned>(kept));
  for (int shift = 24; shift >= 0; shift -= 8) {
    launch(histogram_kernel, blocks, kDigits, 0, stream, error, count, s, shift);
    launch(select_digit_kernel, 1, 1, 0, stream, s, shift);
  }
  const auto tiles = static_cast<unsigned>(s.tiles);
  launch(count_tiles_kernel, tiles, kReducingThreads, 0, stream, error, count, s);
  launch(add_tiles_kernel, 1, kReducingThreads, 0, stream, s);
  launch(write_kept_kernel, tiles, kReducingThreads, 0, stream, error,
         reinterpret_cast<SparseEntry*>(payload), count, s);
}

void add_largest(const std::byte* payload, float* gradient, std::size_t kept, cudaStream_t stream) {
  const auto* entries = reinterpret_cast<const SparseEntry*>(payload);
  each(kept, stream, [=] __device__(std::size_t i) { gradient[entries[i].index] += entries[i].value; });
}

}  // namespace orrery::exec::kernels
