// Fused softmax attention in fp32 with an online softmax (Dao et al., arXiv 2205.14135): no score matrix in
// memory.
//
// One warp owns one query (forward, dQ) or one key (dK, dV) and walks over the other side in tiles of 32 that
// the block shares: lane j scores element j of the tile, and lane e then accumulates columns e, e + 32, … of
// the result.
#include <cfloat>
#include <string>

#include "base/error.h"
#include "exec/cuda/check.h"
#include "exec/cuda/kernels.h"
#include "exec/cuda/launch.h"

namespace orrery::exec::kernels {
namespace {

constexpr int kWarps = 4;
constexpr int kTile = 32;
constexpr int kMaxPerLane = kMaxHeadDim / 32;
constexpr unsigned kAll = 0xffffffffU;

// Where q, k, v of one (batch, head) stand in the packed rows of (heads + 2 * kv_heads) * head_dim.
struct View {
  const AttentionSize layout;
  __host__ __device__ std::int64_t row() const {
    return static_cast<std::int64_t>(layout.heads + 2 * layout.kv_heads) * layout.head_dim;
  }
  __device__ std::int64_t q(int b, int h, int s) const {
    return (static_cast<std::int64_t>(b) * layout.seq + s) * row() +
           static_cast<std::int64_t>(h) * layout.head_dim;
  }
  __device__ std::int64_t k(int b, int kv, int s) const { return q(b, layout.heads + kv, s); }
  __device__ std::int64_t v(int b, int kv, int s) const {
    return q(b, layout.heads + layout.kv_heads + kv, s);
  }
  __device__ std::int64_t out(int b, int h, int s) const {
    return ((static_cast<std::int64_t>(b) * layout.seq + s) * layout.heads + h) * layout.head_dim;
  }
  __device__ std::int64_t stat(int b, int h, int s) const {
    return (static_cast<std::int64_t>(b) * layout.heads + h) * layout.seq + s;
  }
};

__device__ float warp_sum(float value) {
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(kAll, value, offset);
  return value;
}

__device__ float warp_max(float value) {
  for (int offset = 16; offset > 0; offset /= 2) value = fmaxf(value, __shfl_xor_sync(kAll, value, offset));
  return value;
}

// Copies rows [first, first + kTile) of `data(position)` into a padded tile; rows past the end become zero.
template <class Offset>
__device__ void load_tile(float* tile, const float* data, int first, int seq, int dim, Offset offset) {
  for (int i = threadIdx.x; i < kTile * dim; i += kWarps * 32) {
    const int j = i / dim;
    const int e = i % dim;
    tile[j * (dim + 1) + e] = first + j < seq ? data[offset(first + j) + e] : 0;
  }
}

__device__ float dot(const float* a, const float* b, int dim) {
  float sum = 0;
  for (int e = 0; e < dim; ++e) sum += a[e] * b[e];
  return sum;
}

// Grid: (blocks of kWarps queries, heads, batch). Shared: K tile, V tile, kWarps query rows.
__global__ void forward_kernel(const float* qkv, float* out, float* statistics, View view, float scale) {
  float* shared = shared_floats();
  const auto& l = view.layout;
  const int dim = l.head_dim;
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int h = blockIdx.y;
  const int b = blockIdx.z;
  const int kv = h / (l.heads / l.kv_heads);
  const int query = blockIdx.x * kWarps + warp;
  float* keys = shared;
  float* values = keys + kTile * (dim + 1);
  float* q = values + kTile * (dim + 1) + warp * dim;
  for (int e = lane; e < dim; e += 32) q[e] = query < l.seq ? qkv[view.q(b, h, query) + e] : 0;
  float accumulated[kMaxPerLane] = {};
  float top = -FLT_MAX;
  float total = 0;
  const int last_query = min(static_cast<int>(blockIdx.x + 1) * kWarps, l.seq) - 1;
  const int keys_needed =
      l.causal ? last_query + 1 : l.seq;  // of the whole block: every warp meets the barriers
  for (int first = 0; first < keys_needed; first += kTile) {
    __syncthreads();
    load_tile(keys, qkv, first, l.seq, dim, [&](int s) { return view.k(b, kv, s); });
    load_tile(values, qkv, first, l.seq, dim, [&](int s) { return view.v(b, kv, s); });
    __syncthreads();
    const int key = first + lane;
    const bool seen = key < l.seq && (!l.causal || key <= query);
    const float score = seen ? scale * dot(q, keys + lane * (dim + 1), dim) : -FLT_MAX;
    const float new_top = fmaxf(top, warp_max(score));
    const float weight = seen ? expf(score - new_top) : 0;
    const float fade = expf(top - new_top);
    total = total * fade + warp_sum(weight);
    top = new_top;
    for (int i = 0; i < kMaxPerLane; ++i) accumulated[i] *= fade;
    for (int j = 0; j < kTile; ++j) {
      const float w = __shfl_sync(kAll, weight, j);
      for (int i = 0; i < kMaxPerLane; ++i) {
        const int e = lane + 32 * i;
        if (e < dim) accumulated[i] += w * values[j * (dim + 1) + e];
      }
    }
  }
  if (query >= l.seq) return;
  for (int i = 0; i < kMaxPerLane; ++i) {
    const int e = lane + 32 * i;
    if (e < dim) out[view.out(b, h, query) + e] = accumulated[i] / total;
  }
  if (lane == 0) statistics[view.stat(b, h, query)] = top + logf(total);
}

// delta = sum over columns of dout * out: one warp a (batch, head, query).
__global__ void delta_kernel(const float* out, const float* dout, float* delta, View view) {
  const auto& l = view.layout;
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  if (index >= static_cast<std::int64_t>(l.batch) * l.heads * l.seq) return;
  const int s = static_cast<int>(index % l.seq);
  const int h = static_cast<int>(index / l.seq % l.heads);
  const int b = static_cast<int>(index / l.seq / l.heads);
  float sum = 0;
  for (int e = lane; e < l.head_dim; e += 32) sum += out[view.out(b, h, s) + e] * dout[view.out(b, h, s) + e];
  sum = warp_sum(sum);
  if (lane == 0) delta[index] = sum;
}

__global__ void dq_kernel(const float* qkv, const float* dout, const float* statistics, const float* delta,
                          float* dqkv, View view, float scale) {
  float* shared = shared_floats();
  const auto& l = view.layout;
  const int dim = l.head_dim;
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int h = blockIdx.y;
  const int b = blockIdx.z;
  const int kv = h / (l.heads / l.kv_heads);
  const int query = blockIdx.x * kWarps + warp;
  float* keys = shared;
  float* values = keys + kTile * (dim + 1);
  float* q = values + kTile * (dim + 1) + warp * 2 * dim;
  float* g = q + dim;
  const bool live = query < l.seq;
  for (int e = lane; e < dim; e += 32) {
    q[e] = live ? qkv[view.q(b, h, query) + e] : 0;
    g[e] = live ? dout[view.out(b, h, query) + e] : 0;
  }
  const float log_sum = live ? statistics[view.stat(b, h, query)] : 0;
  const float shift = live ? delta[view.stat(b, h, query)] : 0;
  float accumulated[kMaxPerLane] = {};
  const int last_query = min(static_cast<int>(blockIdx.x + 1) * kWarps, l.seq) - 1;
  const int keys_needed = l.causal ? last_query + 1 : l.seq;
  for (int first = 0; first < keys_needed; first += kTile) {
    __syncthreads();
    load_tile(keys, qkv, first, l.seq, dim, [&](int s) { return view.k(b, kv, s); });
    load_tile(values, qkv, first, l.seq, dim, [&](int s) { return view.v(b, kv, s); });
    __syncthreads();
    const int key = first + lane;
    float ds = 0;
    if (live && key < l.seq && (!l.causal || key <= query)) {
      const float p = expf(scale * dot(q, keys + lane * (dim + 1), dim) - log_sum);
      ds = scale * p * (dot(g, values + lane * (dim + 1), dim) - shift);
    }
    for (int j = 0; j < kTile; ++j) {
      const float w = __shfl_sync(kAll, ds, j);
      for (int i = 0; i < kMaxPerLane; ++i) {
        const int e = lane + 32 * i;
        if (e < dim) accumulated[i] += w * keys[j * (dim + 1) + e];
      }
    }
  }
  if (!live) return;
  for (int i = 0; i < kMaxPerLane; ++i) {
    const int e = lane + 32 * i;
    if (e < dim) dqkv[view.q(b, h, query) + e] = accumulated[i];
  }
}

// Grid: (blocks of kWarps keys, kv heads, batch). All query heads of the group add into one key and value.
__global__ void dkv_kernel(const float* qkv, const float* dout, const float* statistics, const float* delta,
                           float* dqkv, View view, float scale) {
  float* shared = shared_floats();
  const auto& l = view.layout;
  const int dim = l.head_dim;
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int kv = blockIdx.y;
  const int b = blockIdx.z;
  const int group = l.heads / l.kv_heads;
  const int key = blockIdx.x * kWarps + warp;
  float* queries = shared;
  float* gradients = queries + kTile * (dim + 1);
  float* k = gradients + kTile * (dim + 1) + warp * 2 * dim;
  float* v = k + dim;
  const bool live = key < l.seq;
  for (int e = lane; e < dim; e += 32) {
    k[e] = live ? qkv[view.k(b, kv, key) + e] : 0;
    v[e] = live ? qkv[view.v(b, kv, key) + e] : 0;
  }
  float dk[kMaxPerLane] = {};
  float dv[kMaxPerLane] = {};
  const int first_query = l.causal ? static_cast<int>(blockIdx.x) * kWarps / kTile * kTile : 0;
  for (int h = kv * group; h < (kv + 1) * group; ++h) {
    for (int first = first_query; first < l.seq; first += kTile) {
      __syncthreads();
      load_tile(queries, qkv, first, l.seq, dim, [&](int s) { return view.q(b, h, s); });
      load_tile(gradients, dout, first, l.seq, dim, [&](int s) { return view.out(b, h, s); });
      __syncthreads();
      const int query = first + lane;
      float p = 0;
      float ds = 0;
      if (live && query < l.seq && (!l.causal || key <= query)) {
        p = expf(scale * dot(k, queries + lane * (dim + 1), dim) - statistics[view.stat(b, h, query)]);
        ds = scale * p * (dot(v, gradients + lane * (dim + 1), dim) - delta[view.stat(b, h, query)]);
      }
      for (int j = 0; j < kTile; ++j) {
        const float wp = __shfl_sync(kAll, p, j);
        const float ws = __shfl_sync(kAll, ds, j);
        for (int i = 0; i < kMaxPerLane; ++i) {
          const int e = lane + 32 * i;
          if (e < dim) {
            dv[i] += wp * gradients[j * (dim + 1) + e];
            dk[i] += ws * queries[j * (dim + 1) + e];
          }
        }
      }
    }
  }
  if (!live) return;
  for (int i = 0; i < kMaxPerLane; ++i) {
    const int e = lane + 32 * i;
    if (e < dim) {
      dqkv[view.k(b, kv, key) + e] = dk[i];
      dqkv[view.v(b, kv, key) + e] = dv[i];
    }
  }
}

// Rotates pairs (e, e + rotary_dim/2) of q and k by position * theta^(-2e/rotary_dim).
__global__ void rotary_kernel(float* qkv, View view, int first_position, int rotary_dim, float theta,
                              bool inverse) {
  const auto& l = view.layout;
  const int half = rotary_dim / 2;
  const std::int64_t count = static_cast<std::int64_t>(l.batch) * l.seq * (l.heads + l.kv_heads) * half;
  for (std::int64_t i = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x; i < count;
       i += static_cast<std::int64_t>(gridDim.x) * blockDim.x) {
    const int e = static_cast<int>(i % half);
    const int h = static_cast<int>(i / half % (l.heads + l.kv_heads));
    const std::int64_t position = i / half / (l.heads + l.kv_heads);
    const int s = static_cast<int>(position % l.seq);
    float* x = qkv + view.q(static_cast<int>(position / l.seq), h, s);
    const float angle = static_cast<float>(first_position + s) *
                        powf(theta, -2.0F * static_cast<float>(e) / static_cast<float>(rotary_dim));
    float sine;
    float cosine;
    sincosf(inverse ? -angle : angle, &sine, &cosine);
    const float a = x[e];
    const float c = x[e + half];
    x[e] = a * cosine - c * sine;
    x[e + half] = c * cosine + a * sine;
  }
}

template <class Kernel>
std::size_t allow_shared(Kernel kernel, int dim, int rows_per_warp) {
  const std::size_t bytes =
      sizeof(float) * (2 * kTile * (dim + 1) + static_cast<std::size_t>(kWarps) * rows_per_warp * dim);
  ORRERY_CUDA(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
  return bytes;
}

unsigned blocks_of(int count) {
  return static_cast<unsigned>((count + kWarps - 1) / kWarps);
}

void check_layout(const AttentionSize& l) {
  if (l.head_dim > kMaxHeadDim || l.head_dim <= 0)
    throw UserError(
        "head dimension " + std::to_string(l.head_dim) + " is not supported by the CUDA attention",
        "expected 1 to " + std::to_string(kMaxHeadDim));
}

}  // namespace

void attention_forward(const float* qkv, float* out, float* statistics, const AttentionSize& l,
                       cudaStream_t stream) {
  check_layout(l);
  if (l.batch == 0 || l.seq == 0) return;
  const float scale = 1.0F / sqrtf(static_cast<float>(l.head_dim));
  const dim3 grid(blocks_of(l.seq), static_cast<unsigned>(l.heads), static_cast<unsigned>(l.batch));
  launch(forward_kernel, grid, kWarps * 32, allow_shared(forward_kernel, l.head_dim, 1), stream, qkv, out,
         statistics, View{l}, scale);
}

void attention_backward(const float* qkv, const float* out, const float* dout, const float* statistics,
                        float* delta, float* dqkv, const AttentionSize& l, cudaStream_t stream) {
  check_layout(l);
  if (l.batch == 0 || l.seq == 0) return;
  const float scale = 1.0F / sqrtf(static_cast<float>(l.head_dim));
  const View view{l};
  launch(delta_kernel, blocks_of(l.batch * l.heads * l.seq), kWarps * 32, 0, stream, out, dout, delta, view);
  const dim3 queries(blocks_of(l.seq), static_cast<unsigned>(l.heads), static_cast<unsigned>(l.batch));
  launch(dq_kernel, queries, kWarps * 32, allow_shared(dq_kernel, l.head_dim, 2), stream, qkv, dout,
         statistics, delta, dqkv, view, scale);
  const dim3 keys(blocks_of(l.seq), static_cast<unsigned>(l.kv_heads), static_cast<unsigned>(l.batch));
  launch(dkv_kernel, keys, kWarps * 32, allow_shared(dkv_kernel, l.head_dim, 2), stream, qkv, dout,
         statistics, delta, dqkv, view, scale);
}

void rotary(float* qkv, const AttentionSize& l, int rotary_dim, float theta, bool inverse,
            cudaStream_t stream) {
  if (l.batch == 0 || l.seq == 0 || rotary_dim < 2) return;
  launch(rotary_kernel, 1024, 256, 0, stream, qkv, View{l}, l.first_position, rotary_dim, theta, inverse);
}

}  // namespace orrery::exec::kernels
