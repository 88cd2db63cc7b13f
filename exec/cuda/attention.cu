// Fused softmax attention, multiplied in fp32 with an online softmax (Dao et al., arXiv 2205.14135): no score
// matrix in memory.
//
// One warp owns one query (forward, dQ) or one key (dK, dV) and walks over the other side in tiles of 32 that
// the block shares: lane j scores element j of the tile, and lane e then accumulates columns e, e + 32, … of
// the result.
#include <cfloat>

#include "exec/cuda/attention_operands.h"
#include "exec/cuda/block_reduce.h"
#include "exec/cuda/check.h"
#include "exec/cuda/each.h"
#include "exec/cuda/launch.h"
#include "exec/cuda/tensor_attention.h"

namespace orrery::exec::kernels {
namespace {

constexpr int kWarps = 4;
constexpr int kTile = 32;
constexpr int kMaxPerLane = kMaxHeadDim / 32;

// The block's two padded tiles become rows [first, first + kTile) of `a(position)` and `b(position)`; rows
// from `end` on become zero. Everyone has read the tiles before, and everyone sees the new ones after.
template <class A, class B>
__device__ void load_tiles(float* tile_a, float* tile_b, int first, int end, int dim, A a, B b) {
  __syncthreads();
  for (int i = threadIdx.x; i < kTile * dim; i += kWarps * 32) {
    const int j = i / dim;
    const int e = i % dim;
    const bool inside = first + j < end;
    tile_a[j * (dim + 1) + e] = inside ? wide(a(first + j)[e]) : 0;
    tile_b[j * (dim + 1) + e] = inside ? wide(b(first + j)[e]) : 0;
  }
  __syncthreads();
}

__device__ float dot(const float* a, const float* b, int dim) {
  float sum = 0;
  for (int e = 0; e < dim; ++e) sum += a[e] * b[e];
  return sum;
}

// Row j of the tile times the weight that lane j holds, for all 32: lane e sums columns e, e + 32, …
// `weights`: the warp's own place in shared memory.
__device__ void add_weighted_rows(float* sums, float weight, float* weights, const float* tile, int dim,
                                  int lane) {
  weights[lane] = weight;
  __syncwarp();
  for (int j = 0; j < kTile; ++j) {
    for (int i = 0; i < kMaxPerLane; ++i) {
      const int e = lane + 32 * i;
      if (e < dim) sums[i] += weights[j] * tile[j * (dim + 1) + e];
    }
  }
  __syncwarp();
}

// Calls put(column, sum) for the columns that this lane has summed.
template <class Put>
__device__ void for_columns(const float* sums, int dim, int lane, Put put) {
  for (int i = 0; i < kMaxPerLane; ++i) {
    const int e = lane + 32 * i;
    if (e < dim) put(e, sums[i]);
  }
}

// The first key, down to a tile's, that any query of this block of warps sees, and where the keys that any
// sees end: every warp meets the barriers.
__device__ int first_key_of_block(const AttentionLayout& o) {
  const int first = o.query_begin + static_cast<int>(blockIdx.x) * kWarps + 1 - o.window;
  return o.window == 0 || first < 0 ? 0 : first / kTile * kTile;
}
__device__ int keys_of_block(const AttentionLayout& o) {
  const int last = min(o.query_begin + static_cast<int>(blockIdx.x + 1) * kWarps, o.seq) - 1;
  return o.causal ? last + 1 : o.key_count;
}

// Grid: (blocks of kWarps queries, heads, batch). Shared: K tile, V tile, kWarps query rows. `joins`: out and
// statistics hold the softmax over other keys, and over those and these afterwards.
template <class T>
__global__ void forward_kernel(AttentionOperands<T> o, bool joins, T* out, float* statistics) {
  __shared__ float weights[kWarps][kTile];
  float* keys = shared_floats();
  const int dim = o.dim;
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int h = blockIdx.y;
  const int b = blockIdx.z;
  const int kv = h / (o.heads / o.kv_heads);
  const int query = o.query_begin + blockIdx.x * kWarps + warp;
  float* values = keys + kTile * (dim + 1);
  float* q = values + kTile * (dim + 1) + warp * dim;
  for (int e = lane; e < dim; e += 32)
    q[e] = query < o.seq ? wide(o.queries[o.query_at(b, h, query) + e]) : 0;
  float sums[kMaxPerLane] = {};
  float top = -FLT_MAX;
  float total = 0;
  const int needed = keys_of_block(o);
  for (int first = first_key_of_block(o); first < needed; first += kTile) {
    load_tiles(
        keys, values, first, o.key_count, dim, [&](int s) { return o.keys + o.key_at(b, kv, s); },
        [&](int s) { return o.values + o.key_at(b, kv, s); });
    const bool seen = o.sees(query, first + lane);
    const float score = seen ? o.capped(o.scale * dot(q, keys + lane * (dim + 1), dim)) : -FLT_MAX;
    const float new_top = fmaxf(top, warp_max(score));
    const float weight = seen ? expf(score - new_top) : 0;
    const float fade = expf(top - new_top);
    total = total * fade + warp_sum(weight);
    top = new_top;
    for (float& sum : sums) sum *= fade;
    const float kept = seen ? weight * o.kept(b, h, query, first + lane) : 0;
    add_weighted_rows(sums, kept, weights[warp], values, dim, lane);
  }
  if (query >= o.seq) return;
  float& statistic = statistics[o.statistic_at(b, h, query)];
  const float now = top + logf(total);
  float joined = now;
  float keep = 0;
  if (joins) {
    const float before = statistic;
    const float most = fmaxf(before, now);
    joined = most + logf(expf(before - most) + expf(now - most));
    keep = expf(before - joined);
  }
  const float take = expf(now - joined) / total;
  T* row = out + o.out_at(b, h, query);
  for_columns(sums, dim, lane,
              [&](int e, float sum) { put(row[e], take * sum + (joins ? keep * wide(row[e]) : 0)); });
  // The lanes of a warp may not have read it yet.
  __syncwarp();
  if (lane == 0) statistic = joined;
}

// delta = sum over columns of dout * out: one warp a (batch, head, query).
template <class T>
__global__ void delta_kernel(AttentionLayout o, int batch, const T* out, const T* dout, float* delta) {
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  if (index >= static_cast<std::int64_t>(batch) * o.heads * o.seq) return;
  const int s = static_cast<int>(index % o.seq);
  const int h = static_cast<int>(index / o.seq % o.heads);
  const int b = static_cast<int>(index / o.seq / o.heads);
  const std::int64_t at = o.out_at(b, h, s);
  float sum = 0;
  for (int e = lane; e < o.dim; e += 32) sum += wide(out[at + e]) * wide(dout[at + e]);
  sum = warp_sum(sum);
  if (lane == 0) delta[index] = sum;
}

// Grid as forward's; two rows a warp. dqueries: as queries lie; added to, or set.
template <class T>
__global__ void dq_kernel(AttentionOperands<T> o, const T* dout, const float* statistics, const float* delta,
                          T* dqueries, bool add) {
  __shared__ float weights[kWarps][kTile];
  float* keys = shared_floats();
  const int dim = o.dim;
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int h = blockIdx.y;
  const int b = blockIdx.z;
  const int kv = h / (o.heads / o.kv_heads);
  const int query = o.query_begin + blockIdx.x * kWarps + warp;
  float* values = keys + kTile * (dim + 1);
  float* q = values + kTile * (dim + 1) + warp * 2 * dim;
  float* g = q + dim;
  const bool live = query < o.seq;
  for (int e = lane; e < dim; e += 32) {
    q[e] = live ? wide(o.queries[o.query_at(b, h, query) + e]) : 0;
    g[e] = live ? wide(dout[o.out_at(b, h, query) + e]) : 0;
  }
  const float log_sum = live ? statistics[o.statistic_at(b, h, query)] : 0;
  const float shift = live ? delta[o.statistic_at(b, h, query)] : 0;
  float sums[kMaxPerLane] = {};
  const int needed = keys_of_block(o);
  for (int first = first_key_of_block(o); first < needed; first += kTile) {
    load_tiles(
        keys, values, first, o.key_count, dim, [&](int s) { return o.keys + o.key_at(b, kv, s); },
        [&](int s) { return o.values + o.key_at(b, kv, s); });
    float ds = 0;
    if (o.sees(query, first + lane)) {
      const float score = o.capped(o.scale * dot(q, keys + lane * (dim + 1), dim));
      const float p = expf(score - log_sum);
      const float dp = o.kept(b, h, query, first + lane) * dot(g, values + lane * (dim + 1), dim);
      ds = o.scale * o.slope(score) * p * (dp - shift);
    }
    add_weighted_rows(sums, ds, weights[warp], keys, dim, lane);
  }
  if (!live) return;
  T* row = dqueries + o.query_at(b, h, query);
  for_columns(sums, dim, lane, [&](int e, float sum) { put(row[e], sum + (add ? wide(row[e]) : 0)); });
}

// Grid: (blocks of kWarps keys, kv heads, batch). All query heads of the group add into one key and value.
// dkeys and dvalues: as keys and values lie; rows from key_count on become zero.
template <class T>
__global__ void dkv_kernel(AttentionOperands<T> o, const T* dout, const float* statistics, const float* delta,
                           T* dkeys, T* dvalues) {
  __shared__ float weights[kWarps][kTile];
  float* queries = shared_floats();
  const int dim = o.dim;
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int kv = blockIdx.y;
  const int b = blockIdx.z;
  const int group = o.heads / o.kv_heads;
  const int key = blockIdx.x * kWarps + warp;
  float* gradients = queries + kTile * (dim + 1);
  float* k = gradients + kTile * (dim + 1) + warp * 2 * dim;
  float* v = k + dim;
  const bool live = key < o.key_count;
  for (int e = lane; e < dim; e += 32) {
    k[e] = live ? wide(o.keys[o.key_at(b, kv, key) + e]) : 0;
    v[e] = live ? wide(o.values[o.key_at(b, kv, key) + e]) : 0;
  }
  float dk[kMaxPerLane] = {};
  float dv[kMaxPerLane] = {};
  const int first_seen = o.causal ? static_cast<int>(blockIdx.x) * kWarps : o.query_begin;
  const int last_key = (static_cast<int>(blockIdx.x) + 1) * kWarps - 1;
  const int end_seen = o.window == 0 ? o.seq : min(o.seq, last_key + o.window);
  for (int h = kv * group; h < (kv + 1) * group; ++h) {
    for (int first = first_seen / kTile * kTile; first < end_seen; first += kTile) {
      load_tiles(
          queries, gradients, first, o.seq, dim, [&](int s) { return o.queries + o.query_at(b, h, s); },
          [&](int s) { return dout + o.out_at(b, h, s); });
      const int query = first + lane;
      float p = 0;
      float ds = 0;
      if (o.sees(query, key)) {
        const std::int64_t at = o.statistic_at(b, h, query);
        const float score = o.capped(o.scale * dot(k, queries + lane * (dim + 1), dim));
        p = expf(score - statistics[at]);
        const float kept = o.kept(b, h, query, key);
        ds = o.scale * o.slope(score) * p * (kept * dot(v, gradients + lane * (dim + 1), dim) - delta[at]);
        p *= kept;
      }
      add_weighted_rows(dv, p, weights[warp], gradients, dim, lane);
      add_weighted_rows(dk, ds, weights[warp], queries, dim, lane);
    }
  }
  if (key >= o.seq) return;
  const std::int64_t at = o.key_at(b, kv, key);
  for_columns(dk, dim, lane, [&](int e, float sum) { put(dkeys[at + e], sum); });
  for_columns(dv, dim, lane, [&](int e, float sum) { put(dvalues[at + e], sum); });
}

std::size_t shared_bytes(int dim, int rows_per_warp) {
  return sizeof(float) * (2 * kTile * (dim + 1) + static_cast<std::size_t>(kWarps) * rows_per_warp * dim);
}

template <class T>
void forward(const AttentionOperands<T>& o, int batch, bool joins, T* out, float* statistics, void* scratch,
             cudaStream_t stream) {
  if (batch == 0 || o.seq <= o.query_begin || o.key_count == 0) return;
  if constexpr (sizeof(T) == 2)
    if (tensor_cores_attend(kTypeOf<T>, o.dim))
      return tensor_attention_forward(o, batch, joins, out, statistics, scratch, stream);
  const auto kernel = forward_kernel<T>;
  launch(kernel, attention_grid(o.seq - o.query_begin, kWarps, o.heads, batch), kWarps * 32,
         allow_shared(kernel, shared_bytes(o.dim, 1)), stream, o, joins, out, statistics);
}

template <class T>
void backward(const AttentionOperands<T>& o, int batch, const T* out, const T* dout, const float* statistics,
              float* delta, const AttentionGradients<T>& gradients, void* scratch, cudaStream_t stream) {
  if (batch == 0 || o.seq == 0) return;
  const AttentionLayout& layout = o;
  launch(delta_kernel<T>, attention_grid(batch * o.heads * o.seq, kWarps, 1, 1), kWarps * 32, 0, stream,
         layout, batch, out, dout, delta);
  if constexpr (sizeof(T) == 2)
    if (tensor_cores_attend(kTypeOf<T>, o.dim))
      return tensor_attention_backward(o, batch, dout, statistics, delta, gradients, scratch, stream);
  const auto dq = dq_kernel<T>;
  if (o.seq > o.query_begin)
    launch(dq, attention_grid(o.seq - o.query_begin, kWarps, o.heads, batch), kWarps * 32,
           allow_shared(dq, shared_bytes(o.dim, 2)), stream, o, dout, statistics, delta, gradients.queries,
           gradients.add_to_queries);
  const auto dkv = dkv_kernel<T>;
  launch(dkv, attention_grid(o.seq, kWarps, o.kv_heads, batch), kWarps * 32,
         allow_shared(dkv, shared_bytes(o.dim, 2)), stream, o, dout, statistics, delta, gradients.keys,
         gradients.values);
}

// The angles as a kernel takes them.
struct Turns {
  float frequency[kMostRotaryPairs];
};

}  // namespace

std::size_t attention_scratch_bytes(DType type, const AttentionSize& size, bool aligned, bool backward) {
  return tensor_cores_attend(type, size.head_dim) ? tensor_attention_scratch_bytes(size, aligned, backward)
                                                  : 0;
}

template <class T>
void Attention<T>::forward(const AttentionSize& l, const T* qkv, T* out, float* statistics, void* scratch,
                           cudaStream_t stream) {
  kernels::forward(packed(l, qkv), l.batch, /*joins=*/false, out, statistics, scratch, stream);
}

template <class T>
void Attention<T>::backward(const AttentionSize& l, const T* qkv, const T* out, const T* dout,
                            const float* statistics, float* delta, T* dqkv, void* scratch,
                            cudaStream_t stream) {
  T* dkeys = dqkv + static_cast<std::int64_t>(l.heads) * l.head_dim;
  T* dvalues = dkeys + static_cast<std::int64_t>(l.kv_heads) * l.head_dim;
  const AttentionGradients<T> gradients{dqkv, false, dkeys, dvalues};
  kernels::backward(packed(l, qkv), l.batch, out, dout, statistics, delta, gradients, scratch, stream);
}

template <class T>
void Attention<T>::block_forward(const AttentionBlock& block, const T* qkv, const T* keys, const T* values,
                                 T* out, float* statistics, void* scratch, cudaStream_t stream) {
  kernels::forward(of_block(block, qkv, keys, values), block.size.batch, /*joins=*/true, out, statistics,
                   scratch, stream);
}

template <class T>
void Attention<T>::block_backward(const AttentionBlock& block, const T* qkv, const T* keys, const T* values,
                                  const T* out, const T* dout, const float* statistics, float* delta, T* dqkv,
                                  T* dkeys, T* dvalues, void* scratch, cudaStream_t stream) {
  const AttentionGradients<T> gradients{dqkv, true, dkeys, dvalues};
  kernels::backward(of_block(block, qkv, keys, values), block.size.batch, out, dout, statistics, delta,
                    gradients, scratch, stream);
}

// Rotates pairs (e, e + pairs) of q and k by position * frequency.
template <class T>
void Attention<T>::rotary(T* qkv, const AttentionSize& size, const RotaryAngles& angles, bool inverse,
                          cudaStream_t stream) {
  const AttentionSize l = size;
  const int half = angles.pairs;
  const auto amplitude = static_cast<float>(angles.amplitude);
  Turns turns;
  for (int e = 0; e < half; ++e) turns.frequency[e] = static_cast<float>(angles.frequency[e]);
  const int turned = l.heads + l.kv_heads;
  const std::int64_t count = static_cast<std::int64_t>(l.batch) * l.seq * half;
  const Cells pairs(half);
  const Cells positions(l.seq);
  // A thread turns its pair of all heads: sines take longer than the memory.
  each(static_cast<std::size_t>(count), stream, [=] __device__(std::size_t i) {
    const std::int64_t row = pairs.row(i);
    const auto e = static_cast<int>(pairs.column(i, row));
    const auto position = static_cast<int>(positions.column(static_cast<std::size_t>(row)));
    const float angle = static_cast<float>(l.first_position + position) * turns.frequency[e];
    float sine;
    float cosine;
    sincosf(inverse ? -angle : angle, &sine, &cosine);
    sine *= amplitude;
    cosine *= amplitude;
    T* x = qkv + row * (turned + l.kv_heads) * l.head_dim + e;
    for (int h = 0; h < turned; ++h, x += l.head_dim) {
      const float a = wide(x[0]);
      const float c = wide(x[half]);
      put(x[0], a * cosine - c * sine);
      put(x[half], c * cosine + a * sine);
    }
  });
}

template struct Attention<float>;
template struct Attention<Bf16>;
template struct Attention<Fp16>;

}  // namespace orrery::exec::kernels
