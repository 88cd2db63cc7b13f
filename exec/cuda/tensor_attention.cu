// Softmax attention on tensor cores, with an online softmax (Dao, arXiv 2307.08691): no score matrix in memory.
//
// A warp owns 16 queries (forward, dQ) or 16 keys (dK, dV), and a block of four walks over the other side in
// tiles of 64. Rows lie in shared memory as words of two columns; what is summed over rows lies there a second time, turned, as
// words of two rows. Rows are padded so that the eight lanes that read one column of words find eight times four banks. Results
// of a warp's own rows are summed by it alone, in order: no atomics, the same bits each time.
#include "exec/cuda/tensor_attention.h"

#include <cfloat>

#include "exec/cuda/check.h"
#include "exec/cuda/launch.h"
#include "exec/cuda/tensor_cores.h"

namespace orrery::exec::kernels {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = 32 * kWarps;
constexpr int kOwn = 16 * kWarps;  // rows of a block
constexpr int kTile = 64;          // rows of the other side
constexpr int kMaxColumns = 128;
constexpr int kPadding = 4;                      // words
constexpr int kTurned = kTile / 2 + kPadding;    // words of a turned row
constexpr float kLog2e = 1.44269504088896341F;
constexpr float kLn2 = 0.693147180559945309F;

static_assert(kOwn == kTile, "rows of either side are loaded alike");

// Words of a row of `Columns`.
template <int Columns>
constexpr int kRow = Columns / 2 + kPadding;

struct alignas(16) Four {
  float x[4];
};

// Rows [first, first + kTile) of `at(row)`, dim columns each, as words; what is outside becomes 0. turned (may be null): the
// same by columns.
template <DType T, int Columns, class At>
__device__ void load_rows(unsigned* rows, unsigned* turned, int first, int end, int dim, At at) {
  // A thread takes two neighbouring rows, four columns of them.
  constexpr int kFours = Columns / 4;
  const bool by_fours = dim % 4 == 0;  // then all of them are aligned
  for (int i = threadIdx.x; i < kTile / 2 * kFours; i += kThreads) {
    const int pair = i / kFours;
    const int column = i % kFours * 4;
    float x[2][4] = {};
    for (int r = 0; r < 2; ++r) {
      const int row = first + 2 * pair + r;
      if (row >= end || column >= dim) continue;
      const float* from = at(row) + column;
      if (by_fours) {
        const Four four = *reinterpret_cast<const Four*>(from);
        for (int c = 0; c < 4; ++c) x[r][c] = four.x[c];
      } else {
        for (int c = 0; c < 4; ++c)
          if (column + c < dim) x[r][c] = from[c];
      }
    }
    if (rows != nullptr)
      for (int r = 0; r < 2; ++r) {
        unsigned* to = rows + (2 * pair + r) * kRow<Columns> + column / 2;
        to[0] = two_of<T>(x[r][0], x[r][1]);
        to[1] = two_of<T>(x[r][2], x[r][3]);
      }
    if (turned != nullptr)
      for (int c = 0; c < 4; ++c) turned[(column + c) * kTurned + pair] = two_of<T>(x[0][c], x[1][c]);
  }
}

// A warp's 16 rows by a tile's 64: element [n][i] is of own row lane / 4 + 8 (i / 2) and the tile's row
// 8 n + 2 (lane % 4) + i % 2.
using Scores = float[kTile / 8][4];

// scores = own rows times the tile's rows, over the columns. own: the first of the warp's rows.
template <DType T, int Columns>
__device__ void rows_by_rows(Scores& scores, const unsigned* own, const unsigned* tile) {
  const int g = threadIdx.x % 32 / 4;
  const int t = threadIdx.x % 4;
  for (auto& four : scores)
    for (float& sum : four) sum = 0;
  ORRERY_UNROLL
  for (int k = 0; k < Columns / 16; ++k) {
    const unsigned* a = own + g * kRow<Columns> + 8 * k + t;
    const unsigned factor[4] = {a[0], a[8 * kRow<Columns>], a[4], a[8 * kRow<Columns> + 4]};
  ORRERY_UNROLL
    for (int n = 0; n < kTile / 8; ++n) {
      const unsigned* b = tile + (8 * n + g) * kRow<Columns> + 8 * k + t;
      multiply_add<T>(scores[n], factor, b[0], b[4]);
    }
  }
}

// sums += weights times the tile's rows, which lie turned. Element [n][i] of the sums is of column
// 8 n + 2 (lane % 4) + i % 2.
template <DType T, int Columns>
__device__ void add_weighted_rows(float (&sums)[Columns / 8][4], const Scores& weights,
                                  const unsigned* turned) {
  const int g = threadIdx.x % 32 / 4;
  const int t = threadIdx.x % 4;
  ORRERY_UNROLL
  for (int k = 0; k < kTile / 16; ++k) {
    const float(&left)[4] = weights[2 * k];
    const float(&right)[4] = weights[2 * k + 1];
    const unsigned factor[4] = {two_of<T>(left[0], left[1]), two_of<T>(left[2], left[3]),
                                two_of<T>(right[0], right[1]), two_of<T>(right[2], right[3])};
  ORRERY_UNROLL
    for (int n = 0; n < Columns / 8; ++n) {
      const unsigned* b = turned + (8 * n + g) * kTurned + 8 * k + t;
      multiply_add<T>(sums[n], factor, b[0], b[4]);
    }
  }
}

// Of the four lanes that share a row.
__device__ float row_sum(float value) {
  value += __shfl_xor_sync(0xffffffffU, value, 1);
  return value + __shfl_xor_sync(0xffffffffU, value, 2);
}
__device__ float row_max(float value) {
  value = fmaxf(value, __shfl_xor_sync(0xffffffffU, value, 1));
  return fmaxf(value, __shfl_xor_sync(0xffffffffU, value, 2));
}

// The warp's sums of own rows `first_own` + lane / 4 and eight further on, by columns of a head: calls put(row, column, sum).
template <int Columns, class Put>
__device__ void for_sums(const float (&sums)[Columns / 8][4], int first_own, int dim, Put put) {
  const int g = threadIdx.x % 32 / 4;
  const int t = threadIdx.x % 4;
  ORRERY_UNROLL
  for (int n = 0; n < Columns / 8; ++n)
  ORRERY_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int column = 8 * n + 2 * t + i % 2;
      if (column < dim) put(first_own + g + 8 * (i / 2), column, sums[n][i]);
    }
}

// Every query in [query, query + kOwn) sees every key in [key, key + kTile).
__device__ bool all_seen(const AttentionOperands& o, int query, int key) {
  return query + kOwn <= o.seq && key + kTile <= o.key_count && (!o.causal || key + kTile - 1 <= query) &&
         (o.window == 0 || key > query + kOwn - 1 - o.window);
}

// The first tile's key that a block of queries sees, and where the keys that it sees end.
__device__ int first_key(const AttentionOperands& o, int query) {
  const int first = query + 1 - o.window;
  return o.window == 0 || first < 0 ? 0 : first / kTile * kTile;
}
__device__ int end_of_keys(const AttentionOperands& o, int query) {
  return o.causal ? min(o.key_count, min(query + kOwn, o.seq)) : o.key_count;
}

// The block's first query. Where attention is causal the last ones see most, and begin first.
__device__ int first_query(const AttentionOperands& o) {
  const unsigned block = o.causal ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
  return o.query_begin + static_cast<int>(block) * kOwn;
}

// Grid: (blocks of kOwn queries, heads, batch).
template <DType T, int Columns>
__global__ void __launch_bounds__(kThreads) forward_kernel(AttentionOperands o, bool joins, float* out, float* statistics) {
  auto* queries = reinterpret_cast<unsigned*>(shared_floats());
  unsigned* keys = queries + kOwn * kRow<Columns>;
  unsigned* values = keys + kTile * kRow<Columns>;  // turned
  const int h = blockIdx.y;
  const int b = blockIdx.z;
  const int kv = h / (o.heads / o.kv_heads);
  const int warp = threadIdx.x / 32;
  const int g = threadIdx.x % 32 / 4;
  const int t = threadIdx.x % 4;
  const int query0 = first_query(o);
  const int own = query0 + 16 * warp + g;  // and eight further on
  load_rows<T, Columns>(queries, nullptr, query0, o.seq, o.dim,
                        [&](int s) { return o.queries + o.query_at(b, h, s); });
  float sums[Columns / 8][4] = {};
  float top[2] = {-FLT_MAX, -FLT_MAX};  // in powers of two
  float total[2] = {0, 0};
  const float factor = o.scale * kLog2e;
  const int end = end_of_keys(o, query0);
  for (int key0 = first_key(o, query0); key0 < end; key0 += kTile) {
    __syncthreads();
    load_rows<T, Columns>(keys, nullptr, key0, o.key_count, o.dim,
                          [&](int s) { return o.keys + o.key_at(b, kv, s); });
    load_rows<T, Columns>(nullptr, values, key0, o.key_count, o.dim,
                          [&](int s) { return o.values + o.key_at(b, kv, s); });
    __syncthreads();
    Scores scores;
    rows_by_rows<T, Columns>(scores, queries + 16 * warp * kRow<Columns>, keys);
    const bool all = all_seen(o, query0, key0);
    float most[2] = {top[0], top[1]};
  ORRERY_UNROLL
    for (int n = 0; n < kTile / 8; ++n)
  ORRERY_UNROLL
      for (int i = 0; i < 4; ++i) {
        float& score = scores[n][i];
        score = o.cap > 0 ? kLog2e * o.capped(o.scale * score) : factor * score;
        if (!all && !o.sees(own + 8 * (i / 2), key0 + 8 * n + 2 * t + i % 2)) score = -FLT_MAX;
        most[i / 2] = fmaxf(most[i / 2], score);
      }
    float fade[2];
    for (int r = 0; r < 2; ++r) {
      most[r] = row_max(most[r]);
      fade[r] = exp2f(top[r] - most[r]);
      top[r] = most[r];
      total[r] *= fade[r];
    }
  ORRERY_UNROLL
    for (int n = 0; n < Columns / 8; ++n)
      for (int i = 0; i < 4; ++i) sums[n][i] *= fade[i / 2];
    float part[2] = {0, 0};
  ORRERY_UNROLL
    for (int n = 0; n < kTile / 8; ++n)
  ORRERY_UNROLL
      for (int i = 0; i < 4; ++i) {
        float& weight = scores[n][i];
        // What is not seen is as far below as it gets, and where nothing has been seen yet as high as the top.
        weight = !all && weight == -FLT_MAX ? 0 : exp2f(weight - top[i / 2]);
        part[i / 2] += weight;
        if (o.threshold != 0 && weight > 0)
          weight *= o.kept(b, h, own + 8 * (i / 2), key0 + 8 * n + 2 * t + i % 2);
      }
    for (int r = 0; r < 2; ++r) total[r] += row_sum(part[r]);
    add_weighted_rows<T, Columns>(sums, scores, values);
  }
  float keep[2] = {0, 0};
  float take[2] = {0, 0};
  float joined[2] = {0, 0};
  for (int r = 0; r < 2; ++r) {
    if (own + 8 * r >= o.seq) continue;
    const float now = joined[r] = kLn2 * (top[r] + log2f(total[r]));
    if (joins) {
      const float before = statistics[o.statistic_at(b, h, own + 8 * r)];
      const float most = fmaxf(before, now);
      joined[r] = most + logf(expf(before - most) + expf(now - most));
      keep[r] = expf(before - joined[r]);
    }
    take[r] = expf(now - joined[r]) / total[r];
  }
  __syncwarp();  // before that, a row's other lanes may not have read it
  for (int r = 0; r < 2; ++r)
    if (t == 0 && own + 8 * r < o.seq) statistics[o.statistic_at(b, h, own + 8 * r)] = joined[r];
  for_sums<Columns>(sums, query0 + 16 * warp, o.dim, [&](int s, int e, float sum) {
    if (s >= o.seq) return;
    const int r = s == own ? 0 : 1;
    float& to = out[o.out_at(b, h, s) + e];
    to = take[r] * sum + (joins ? keep[r] * to : 0);
  });
}

// What backward needs of a score: the probability as values are weighted by it, and its gradient.
struct Both {
  float weight, gradient;
};
// score: before the scale; dp: the gradient by the probability, but for the dropout.
__device__ Both both_of(const AttentionOperands& o, bool seen, float score, float dp, float statistic,
                        float delta, float kept) {
  if (!seen) return {0, 0};
  const float capped = o.capped(o.scale * score);
  const float p = exp2f(kLog2e * (capped - statistic));
  return {p * kept, o.scale * o.slope(capped) * p * (kept * dp - delta)};
}

// Grid as forward's. dqueries: as queries lie; added to, or set.
template <DType T, int Columns>
__global__ void __launch_bounds__(kThreads) dq_kernel(AttentionOperands o, const float* dout, const float* statistics, const float* delta,
                          float* dqueries, bool add) {
  auto* queries = reinterpret_cast<unsigned*>(shared_floats());
  unsigned* gradients = queries + kOwn * kRow<Columns>;
  unsigned* keys = gradients + kOwn * kRow<Columns>;
  unsigned* values = keys + kTile * kRow<Columns>;
  unsigned* turned_keys = values + kTile * kRow<Columns>;
  const int h = blockIdx.y;
  const int b = blockIdx.z;
  const int kv = h / (o.heads / o.kv_heads);
  const int warp = threadIdx.x / 32;
  const int g = threadIdx.x % 32 / 4;
  const int t = threadIdx.x % 4;
  const int query0 = first_query(o);
  const int own = query0 + 16 * warp + g;
  load_rows<T, Columns>(queries, nullptr, query0, o.seq, o.dim,
                        [&](int s) { return o.queries + o.query_at(b, h, s); });
  load_rows<T, Columns>(gradients, nullptr, query0, o.seq, o.dim,
                        [&](int s) { return dout + o.out_at(b, h, s); });
  float log_sum[2] = {0, 0};
  float shift[2] = {0, 0};
  for (int r = 0; r < 2; ++r) {
    if (own + 8 * r >= o.seq) continue;
    log_sum[r] = statistics[o.statistic_at(b, h, own + 8 * r)];
    shift[r] = delta[o.statistic_at(b, h, own + 8 * r)];
  }
  float sums[Columns / 8][4] = {};
  const int end = end_of_keys(o, query0);
  for (int key0 = first_key(o, query0); key0 < end; key0 += kTile) {
    __syncthreads();
    load_rows<T, Columns>(keys, turned_keys, key0, o.key_count, o.dim,
                          [&](int s) { return o.keys + o.key_at(b, kv, s); });
    load_rows<T, Columns>(values, nullptr, key0, o.key_count, o.dim,
                          [&](int s) { return o.values + o.key_at(b, kv, s); });
    __syncthreads();
    Scores scores;
    rows_by_rows<T, Columns>(scores, queries + 16 * warp * kRow<Columns>, keys);
    Scores dp;
    rows_by_rows<T, Columns>(dp, gradients + 16 * warp * kRow<Columns>, values);
    const bool all = all_seen(o, query0, key0);
  ORRERY_UNROLL
    for (int n = 0; n < kTile / 8; ++n)
  ORRERY_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int query = own + 8 * (i / 2);
        const int key = key0 + 8 * n + 2 * t + i % 2;
        const bool seen = all || o.sees(query, key);
        const float kept = seen ? o.kept(b, h, query, key) : 1;
        scores[n][i] =
            both_of(o, seen, scores[n][i], dp[n][i], log_sum[i / 2], shift[i / 2], kept).gradient;
      }
    add_weighted_rows<T, Columns>(sums, scores, turned_keys);
  }
  for_sums<Columns>(sums, query0 + 16 * warp, o.dim, [&](int s, int e, float sum) {
    if (s >= o.seq) return;
    float& to = dqueries[o.query_at(b, h, s) + e];
    to = sum + (add ? to : 0);
  });
}

// Grid: (blocks of kOwn keys, kv heads, batch). All query heads of the group add into one key and value.
// dkeys and dvalues: as keys and values lie; rows from key_count on become zero.
template <DType T, int Columns>
__global__ void __launch_bounds__(kThreads) dkv_kernel(AttentionOperands o, const float* dout, const float* statistics, const float* delta,
                           float* dkeys, float* dvalues) {
  auto* keys = reinterpret_cast<unsigned*>(shared_floats());
  unsigned* values = keys + kOwn * kRow<Columns>;
  unsigned* queries = values + kOwn * kRow<Columns>;
  unsigned* gradients = queries + kTile * kRow<Columns>;
  unsigned* turned_queries = gradients + kTile * kRow<Columns>;
  unsigned* turned_gradients = turned_queries + Columns * kTurned;
  auto* log_sums = reinterpret_cast<float*>(turned_gradients + Columns * kTurned);
  float* shifts = log_sums + kTile;
  const int kv = blockIdx.y;
  const int b = blockIdx.z;
  const int warp = threadIdx.x / 32;
  const int g = threadIdx.x % 32 / 4;
  const int t = threadIdx.x % 4;
  const int group = o.heads / o.kv_heads;
  const int key0 = static_cast<int>(blockIdx.x) * kOwn;
  const int own = key0 + 16 * warp + g;
  load_rows<T, Columns>(keys, nullptr, key0, o.key_count, o.dim,
                        [&](int s) { return o.keys + o.key_at(b, kv, s); });
  load_rows<T, Columns>(values, nullptr, key0, o.key_count, o.dim,
                        [&](int s) { return o.values + o.key_at(b, kv, s); });
  float dk[Columns / 8][4] = {};
  float dv[Columns / 8][4] = {};
  const int first_seen = (o.causal ? max(key0, o.query_begin) : o.query_begin) / kTile * kTile;
  const int end_seen = key0 >= o.key_count ? 0 : o.window == 0 ? o.seq : min(o.seq, key0 + kOwn - 1 + o.window);
  for (int h = kv * group; h < (kv + 1) * group; ++h) {
    for (int query0 = first_seen; query0 < end_seen; query0 += kTile) {
      __syncthreads();
      load_rows<T, Columns>(queries, turned_queries, query0, o.seq, o.dim,
                            [&](int s) { return o.queries + o.query_at(b, h, s); });
      load_rows<T, Columns>(gradients, turned_gradients, query0, o.seq, o.dim,
                            [&](int s) { return dout + o.out_at(b, h, s); });
      for (int i = threadIdx.x; i < kTile; i += kThreads) {
        const bool inside = query0 + i < o.seq;
        log_sums[i] = inside ? statistics[o.statistic_at(b, h, query0 + i)] : 0;
        shifts[i] = inside ? delta[o.statistic_at(b, h, query0 + i)] : 0;
      }
      __syncthreads();
      Scores weights;
      rows_by_rows<T, Columns>(weights, keys + 16 * warp * kRow<Columns>, queries);
      Scores dp;
      rows_by_rows<T, Columns>(dp, values + 16 * warp * kRow<Columns>, gradients);
      const bool all = query0 >= o.query_begin && all_seen(o, query0, key0);
  ORRERY_UNROLL
      for (int n = 0; n < kTile / 8; ++n)
  ORRERY_UNROLL
        for (int i = 0; i < 4; ++i) {
          const int at = 8 * n + 2 * t + i % 2;
          const int query = query0 + at;
          const int key = own + 8 * (i / 2);
          const bool seen = all || o.sees(query, key);
          const float kept = seen ? o.kept(b, h, query, key) : 1;
          const Both both = both_of(o, seen, weights[n][i], dp[n][i], log_sums[at], shifts[at], kept);
          weights[n][i] = both.weight;
          dp[n][i] = both.gradient;
        }
      add_weighted_rows<T, Columns>(dv, weights, turned_gradients);
      add_weighted_rows<T, Columns>(dk, dp, turned_queries);
    }
  }
  const auto put = [&](const float(&sums)[Columns / 8][4], float* to) {
    for_sums<Columns>(sums, key0 + 16 * warp, o.dim, [&](int s, int e, float sum) {
      if (s < o.seq) to[o.key_at(b, kv, s) + e] = sum;
    });
  };
  put(dk, dkeys);
  put(dv, dvalues);
}

constexpr std::size_t kWord = sizeof(unsigned);

// rows: tiles of rows in shared memory; turned: tiles that lie turned.
template <int Columns, class Kernel>
std::size_t allow_shared(Kernel kernel, int rows, int turned, int floats) {
  const std::size_t words = static_cast<std::size_t>(rows) * kTile * kRow<Columns> +
                            static_cast<std::size_t>(turned) * Columns * kTurned;
  const std::size_t bytes = words * kWord + static_cast<std::size_t>(floats) * sizeof(float);
  ORRERY_CUDA(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
  return bytes;
}

dim3 grid_of(int rows, int heads, int batch) {
  return {static_cast<unsigned>((rows + kOwn - 1) / kOwn), static_cast<unsigned>(heads),
          static_cast<unsigned>(batch)};
}

template <DType T, int Columns>
void forward(const AttentionOperands& o, int batch, bool joins, float* out, float* statistics,
             cudaStream_t stream) {
  const auto kernel = forward_kernel<T, Columns>;
  launch(kernel, grid_of(o.seq - o.query_begin, o.heads, batch), kThreads,
         allow_shared<Columns>(kernel, 2, 1, 0), stream, o, joins, out, statistics);
}

template <DType T, int Columns>
void backward(const AttentionOperands& o, int batch, const float* dout, const float* statistics,
              const float* delta, const AttentionGradients& gradients, cudaStream_t stream) {
  const auto dq = dq_kernel<T, Columns>;
  if (o.seq > o.query_begin)
    launch(dq, grid_of(o.seq - o.query_begin, o.heads, batch), kThreads, allow_shared<Columns>(dq, 4, 1, 0),
           stream, o, dout, statistics, delta, gradients.queries, gradients.add_to_queries);
  const auto dkv = dkv_kernel<T, Columns>;
  launch(dkv, grid_of(o.seq, o.kv_heads, batch), kThreads, allow_shared<Columns>(dkv, 4, 2, 2 * kTile),
         stream, o, dout, statistics, delta, gradients.keys, gradients.values);
}

// Calls run with the least number of columns that holds a head, as a constant.
template <class Run>
void with_columns(int dim, Run run) {
  if (dim <= 64)
    run(std::integral_constant<int, 64>());
  else
    run(std::integral_constant<int, kMaxColumns>());
}

}  // namespace

bool tensor_cores_attend(DType type, int head_dim) {
  return (type == DType::bf16 || type == DType::fp16) && head_dim <= kMaxColumns;
}

void tensor_attention_forward(DType type, const AttentionOperands& o, int batch, bool joins, float* out,
                              float* statistics, cudaStream_t stream) {
  with_columns(o.dim, [&](auto columns) {
    if (type == DType::bf16)
      forward<DType::bf16, columns>(o, batch, joins, out, statistics, stream);
    else
      forward<DType::fp16, columns>(o, batch, joins, out, statistics, stream);
  });
}

void tensor_attention_backward(DType type, const AttentionOperands& o, int batch, const float* dout,
                               const float* statistics, const float* delta,
                               const AttentionGradients& gradients, cudaStream_t stream) {
  with_columns(o.dim, [&](auto columns) {
    if (type == DType::bf16)
      backward<DType::bf16, columns>(o, batch, dout, statistics, delta, gradients, stream);
    else
      backward<DType::fp16, columns>(o, batch, dout, statistics, delta, gradients, stream);
  });
}

}  // namespace orrery::exec::kernels
