// Softmax attention on tensor cores, with an online softmax (Dao, arXiv 2307.08691): no score matrix in
// memory.
//
// Tiles are copied as they lie in rows of queries, keys and values, the next one while this one is
// multiplied; what is beyond a head's rows and columns is zero. A warp owns 16 queries (forward, dQ) or 16
// keys (dK, dV), and a block of four walks over the other side in tiles of 64. Rows in shared memory are
// padded so that eight rows of eight numbers lie in different banks. A warp's own rows are summed by it
// alone, in order: no atomics, the same bits each time.
#include <cfloat>
#include <cstdint>

#include "exec/cuda/check.h"
#include "exec/cuda/each.h"
#include "exec/cuda/launch.h"
#include "exec/cuda/tensor_attention.h"
#include "exec/cuda/tensor_cores.h"

namespace orrery::exec::kernels {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = 32 * kWarps;
constexpr int kTile = 64;  // rows: a block's own ones and the other side's at once
constexpr int kMaxColumns = 128;
constexpr float kLog2e = 1.44269504088896341F;
constexpr float kLn2 = 0.693147180559945309F;

static_assert(kTile == 16 * kWarps);

// Words of a row, and of a tile, of so many columns in shared memory.
template <int Columns>
constexpr int kRow = Columns / 2 + 4;
template <int Columns>
constexpr int kTileWords = kTile* kRow<Columns>;

// Columns of a head in shared memory, and in a copy.
int padded_columns(int head_dim) {
  return head_dim <= 64 ? 64 : kMaxColumns;
}
int copied_columns(int head_dim) {
  return (head_dim + 7) / 8 * 8;
}

// Heads as they lie, a multiple of 16 bytes from an aligned place; elements from one to the next.
template <class T>
struct Heads {
  const T* data;  // the first one's of the first sample
  std::int64_t of_sample, of_head, of_row;
  int rows, columns;  // of a head; zeros are taken for what is beyond
};

template <class T>
struct Tensors {
  Heads<T> queries, keys, values, gradients;
};

using Words = Some<unsigned, 4>;

// `heads` of `dim` columns side by side in rows `stride` apart, `seq` of each sample, of which the first
// `count` are copied, head by head.
template <class T>
void copy_heads(const T* from, std::int64_t stride, int batch, int heads, int seq, int count, int dim, T* to,
                cudaStream_t stream) {
  const int columns = copied_columns(dim);
  const Cells pieces(columns / kPiece<T>);
  // Heads before rows: neighbouring threads read along a row.
  const Cells in_row(heads);
  const Cells in_sample(count);
  each(static_cast<std::size_t>(batch) * heads * count * (columns / kPiece<T>), stream,
       [=] __device__(std::size_t i) {
         const std::int64_t at = pieces.row(i);
         const int column = kPiece<T> * static_cast<int>(pieces.column(i, at));
         const std::int64_t row_of_all = in_row.row(static_cast<std::size_t>(at));
         const std::int64_t h = in_row.column(static_cast<std::size_t>(at), row_of_all);
         const std::int64_t b = in_sample.row(static_cast<std::size_t>(row_of_all));
         const std::int64_t s = in_sample.column(static_cast<std::size_t>(row_of_all), b);
         const T* row = from + (b * seq + s) * stride + h * dim;
         Piece<T> result = {};
         for (int c = 0; c < kPiece<T>; ++c)
           if (column + c < dim) result.x[c] = row[column + c];
         *reinterpret_cast<Piece<T>*>(to + ((b * heads + h) * count + s) * columns + column) = result;
       });
}

// Rows [first, first + kTile) of a head on their way to shared memory.
template <int Columns, class T>
__device__ void copy_tile(unsigned* tile, const Heads<T>& heads, int b, int h, int first) {
  constexpr int kPieces = Columns / 8;  // of a row
  const int piece = static_cast<int>(threadIdx.x) % kPieces;
  const T* from = heads.data + b * heads.of_sample + h * heads.of_head + 8 * piece;
  const int rows = 8 * piece < heads.columns ? heads.rows - first : 0;
  ORRERY_UNROLL
  for (int i = 0; i < kTile * kPieces / kThreads; ++i) {
    const int row = (static_cast<int>(threadIdx.x) + i * kThreads) / kPieces;
    unsigned* to = tile + row * kRow<Columns> + 4 * piece;
    if (row < rows)
      copy_sixteen(to, &from[(first + row) * heads.of_row].bits);
    else
      *reinterpret_cast<Words*>(to) = Words{};
  }
}

// A warp's 16 rows by a tile's 64: element [n][i] is of own row lane / 4 + 8 (i / 2) and the tile's row
// 8 n + 2 (lane % 4) + i % 2.
using Scores = float[kTile / 8][4];

// scores = own rows, from `first_own` of their tile on, times the tile's rows, over the columns.
template <class T, int Columns>
__device__ void rows_by_rows(Scores& scores, const unsigned* own, int first_own, const unsigned* tile) {
  ORRERY_UNROLL
  for (auto& four : scores)
    for (float& sum : four) sum = 0;
  ORRERY_UNROLL
  for (int k = 0; k < Columns; k += 16) {
    unsigned factor[4];
    load_blocks<false, true>(factor, own, kRow<Columns>, first_own, k);
    ORRERY_UNROLL
    for (int n = 0; n < kTile / 8; n += 2) {
      unsigned other[4];  // of two blocks of eight rows
      load_blocks<false, false>(other, tile, kRow<Columns>, 8 * n, k);
      multiply_add<kTypeOf<T>>(scores[n], factor, other[0], other[1]);
      multiply_add<kTypeOf<T>>(scores[n + 1], factor, other[2], other[3]);
    }
  }
}

// sums += weights times the tile's rows. Element [n][i] of the sums is of column 8 n + 2 (lane % 4) + i % 2.
template <class T, int Columns>
__device__ void add_weighted_rows(float (&sums)[Columns / 8][4], const Scores& weights,
                                  const unsigned* tile) {
  ORRERY_UNROLL
  for (int k = 0; k < kTile / 16; ++k) {
    const float(&left)[4] = weights[2 * k];
    const float(&right)[4] = weights[2 * k + 1];
    const unsigned factor[4] = {two_of<kTypeOf<T>>(left[0], left[1]), two_of<kTypeOf<T>>(left[2], left[3]),
                                two_of<kTypeOf<T>>(right[0], right[1]),
                                two_of<kTypeOf<T>>(right[2], right[3])};
    ORRERY_UNROLL
    for (int n = 0; n < Columns / 8; n += 2) {
      unsigned other[4];
      load_blocks<true, true>(other, tile, kRow<Columns>, 16 * k, 8 * n);
      multiply_add<kTypeOf<T>>(sums[n], factor, other[0], other[1]);
      multiply_add<kTypeOf<T>>(sums[n + 1], factor, other[2], other[3]);
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

// The warp's sums of own rows `first_own` + lane / 4 and eight further on, by columns of a head, into rows
// below `rows`: row s begins at to + at(s). Element x of row s becomes f(s, sum, x). Rows of even length and
// place are written two columns at once.
template <int Columns, class T, class At, class F>
__device__ void write_sums(const float (&sums)[Columns / 8][4], int first_own, int rows, int dim, T* to,
                           At at, F f) {
  const int g = threadIdx.x % 32 / 4;
  const int t = threadIdx.x % 4;
  const bool pairs = dim % 2 == 0 && reinterpret_cast<std::uintptr_t>(to) % sizeof(unsigned) == 0;
  ORRERY_UNROLL
  for (int half = 0; half < 2; ++half) {
    const int s = first_own + g + 8 * half;
    if (s >= rows) continue;
    T* row = to + at(s) + 2 * t;
    ORRERY_UNROLL
    for (int n = 0; n < Columns / 8; ++n) {
      const int left = dim - 8 * n - 2 * t;
      const float* both = sums[n] + 2 * half;
      T* place = row + 8 * n;
      if (pairs && left > 0) {
        *reinterpret_cast<unsigned*>(place) =
            two_of<kTypeOf<T>>(f(s, both[0], place[0]), f(s, both[1], place[1]));
      } else {
        if (left > 0) put(place[0], f(s, both[0], place[0]));
        if (left > 1) put(place[1], f(s, both[1], place[1]));
      }
    }
  }
}

// Every query in [query, query + kTile) sees every key in [key, key + kTile).
__device__ bool all_seen(const AttentionLayout& o, int query, int key) {
  return query >= o.query_begin && query + kTile <= o.seq && key + kTile <= o.key_count &&
         (!o.causal || key + kTile - 1 <= query) && (o.window == 0 || key > query + kTile - 1 - o.window);
}

// The first tile's key that a block of queries sees, and where the keys that it sees end.
__device__ int first_key(const AttentionLayout& o, int query) {
  const int first = query + 1 - o.window;
  return o.window == 0 || first < 0 ? 0 : first / kTile * kTile;
}
__device__ int end_of_keys(const AttentionLayout& o, int query) {
  return o.causal ? min(o.key_count, min(query + kTile, o.seq)) : o.key_count;
}

// Two tiles of the other side, twice in shared memory: while one pair is multiplied, the next one is on its
// way: where the pair of a step lies.
template <int Columns>
__device__ unsigned* pair_of(unsigned* tiles, int step) {
  return tiles + step % 2 * 2 * kTileWords<Columns>;
}

// Tile `step` of the keys and values of a head that a block of queries sees, on its way; a group of copies
// also where there is none.
template <int Columns, class T>
__device__ void fetch_keys(unsigned* tiles, const Tensors<T>& in, int b, int kv, int begin, int end,
                           int step) {
  if (const int key = begin + step * kTile; key < end) {
    unsigned* to = pair_of<Columns>(tiles, step);
    copy_tile<Columns>(to, in.keys, b, kv, key);
    copy_tile<Columns>(to + kTileWords<Columns>, in.values, b, kv, key);
  }
  end_group_of_copies();
}

// The block's first query. Where attention is causal the last ones see most, and begin first.
__device__ int first_query(const AttentionLayout& o) {
  const unsigned block = o.causal ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
  return o.query_begin + static_cast<int>(block) * kTile;
}

// Grid: (blocks of kTile queries, heads, batch).
template <class T, int Columns>
__global__ void __launch_bounds__(kThreads, Columns == 64 ? 4 : 2)
    forward_kernel(AttentionLayout o, Tensors<T> in, bool joins, T* out, float* statistics) {
  auto* queries = reinterpret_cast<unsigned*>(shared_floats());
  unsigned* tiles = queries + kTileWords<Columns>;  // keys and values, twice
  const int h = blockIdx.y;
  const int b = blockIdx.z;
  const int kv = h / (o.heads / o.kv_heads);
  const int warp = threadIdx.x / 32;
  const int g = threadIdx.x % 32 / 4;
  const int t = threadIdx.x % 4;
  const int query0 = first_query(o);
  const int own = query0 + 16 * warp + g;  // and eight further on
  const int begin = first_key(o, query0);
  const int end = end_of_keys(o, query0);
  copy_tile<Columns>(queries, in.queries, b, h, query0);
  fetch_keys<Columns>(tiles, in, b, kv, begin, end, 0);
  float sums[Columns / 8][4] = {};
  float top[2] = {-FLT_MAX, -FLT_MAX};  // in powers of two
  float total[2] = {0, 0};
  const float factor = o.scale * kLog2e;
  for (int step = 0, key0 = begin; key0 < end; ++step, key0 += kTile) {
    const unsigned* keys = pair_of<Columns>(tiles, step);
    const unsigned* values = keys + kTileWords<Columns>;
    fetch_keys<Columns>(tiles, in, b, kv, begin, end, step + 1);
    wait_for_copies<1>();
    __syncthreads();
    Scores scores;
    rows_by_rows<T, Columns>(scores, queries, 16 * warp, keys);
    const bool all = all_seen(o, query0, key0);
    float most[2] = {top[0], top[1]};
    ORRERY_UNROLL
    for (int n = 0; n < kTile / 8; ++n) ORRERY_UNROLL
    for (int i = 0; i < 4; ++i) {
      float& score = scores[n][i];
      score = o.cap > 0 ? kLog2e * o.capped(o.scale * score) : factor * score;
      if (!all && !o.sees(own + 8 * (i / 2), key0 + 8 * n + 2 * t + i % 2)) score = -FLT_MAX;
      most[i / 2] = fmaxf(most[i / 2], score);
    }
    float fade[2];
    for (int r = 0; r < 2; ++r) {
      most[r] = row_max(most[r]);
      fade[r] = power_of_two(top[r] - most[r]);
      top[r] = most[r];
      total[r] *= fade[r];
    }
    ORRERY_UNROLL
    for (int n = 0; n < Columns / 8; ++n)
      for (int i = 0; i < 4; ++i) sums[n][i] *= fade[i / 2];
    float part[2] = {0, 0};
    ORRERY_UNROLL
    for (int n = 0; n < kTile / 8; ++n) ORRERY_UNROLL
    for (int i = 0; i < 4; ++i) {
      float& weight = scores[n][i];
      // What is not seen is as far below as it gets, and where nothing has been seen yet as high as the top.
      weight = !all && weight == -FLT_MAX ? 0 : power_of_two(weight - top[i / 2]);
      part[i / 2] += weight;
      if (o.threshold != 0 && weight > 0)
        weight *= o.kept(b, h, own + 8 * (i / 2), key0 + 8 * n + 2 * t + i % 2);
    }
    for (int r = 0; r < 2; ++r) total[r] += row_sum(part[r]);
    add_weighted_rows<T, Columns>(sums, scores, values);
    __syncthreads();
  }
  wait_for_copies<0>();
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
  write_sums<Columns>(
      sums, query0 + 16 * warp, o.seq, o.dim, out, [&](int s) { return o.out_at(b, h, s); },
      [&](int s, float sum, const T& before) {
        const int r = s == own ? 0 : 1;
        return take[r] * sum + (joins ? keep[r] * wide(before) : 0);
      });
}

// What backward needs of a score: the probability as values are weighted by it, and its gradient.
struct Both {
  float weight, gradient;
};
// score: before the scale; dp: the gradient by the probability, but for the dropout; statistic: in powers of
// two.
__device__ Both both_of(const AttentionLayout& o, float score, float dp, float statistic, float delta,
                        float kept) {
  float slope = o.scale;
  float power = o.scale * kLog2e * score;
  if (o.cap > 0) {
    const float capped = o.capped(o.scale * score);
    slope *= o.slope(capped);
    power = kLog2e * capped;
  }
  const float p = power_of_two(power - statistic);
  return {p * kept, slope * p * (kept * dp - delta)};
}

// Grid as forward's. dqueries: as queries lie; added to, or set.
template <class T, int Columns>
__global__ void __launch_bounds__(kThreads, Columns == 64 ? 3 : 2)
    dq_kernel(AttentionLayout o, Tensors<T> in, const float* statistics, const float* delta, T* dqueries,
              bool add) {
  auto* queries = reinterpret_cast<unsigned*>(shared_floats());
  unsigned* gradients = queries + kTileWords<Columns>;
  unsigned* tiles = gradients + kTileWords<Columns>;  // keys and values, twice
  const int h = blockIdx.y;
  const int b = blockIdx.z;
  const int kv = h / (o.heads / o.kv_heads);
  const int warp = threadIdx.x / 32;
  const int g = threadIdx.x % 32 / 4;
  const int t = threadIdx.x % 4;
  const int query0 = first_query(o);
  const int own = query0 + 16 * warp + g;
  const int begin = first_key(o, query0);
  const int end = end_of_keys(o, query0);
  copy_tile<Columns>(queries, in.queries, b, h, query0);
  copy_tile<Columns>(gradients, in.gradients, b, h, query0);
  fetch_keys<Columns>(tiles, in, b, kv, begin, end, 0);
  float log_sum[2] = {0, 0};
  float shift[2] = {0, 0};
  for (int r = 0; r < 2; ++r) {
    if (own + 8 * r >= o.seq) continue;
    log_sum[r] = kLog2e * statistics[o.statistic_at(b, h, own + 8 * r)];
    shift[r] = delta[o.statistic_at(b, h, own + 8 * r)];
  }
  float sums[Columns / 8][4] = {};
  for (int step = 0, key0 = begin; key0 < end; ++step, key0 += kTile) {
    const unsigned* keys = pair_of<Columns>(tiles, step);
    const unsigned* values = keys + kTileWords<Columns>;
    fetch_keys<Columns>(tiles, in, b, kv, begin, end, step + 1);
    wait_for_copies<1>();
    __syncthreads();
    Scores scores;
    rows_by_rows<T, Columns>(scores, queries, 16 * warp, keys);
    Scores dp;
    rows_by_rows<T, Columns>(dp, gradients, 16 * warp, values);
    const bool all = all_seen(o, query0, key0);
    ORRERY_UNROLL
    for (int n = 0; n < kTile / 8; ++n) ORRERY_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int query = own + 8 * (i / 2);
      const int key = key0 + 8 * n + 2 * t + i % 2;
      const bool seen = all || o.sees(query, key);
      const float kept = seen && o.threshold != 0 ? o.kept(b, h, query, key) : 1;
      scores[n][i] =
          seen ? both_of(o, scores[n][i], dp[n][i], log_sum[i / 2], shift[i / 2], kept).gradient : 0;
    }
    add_weighted_rows<T, Columns>(sums, scores, keys);
    __syncthreads();
  }
  wait_for_copies<0>();
  write_sums<Columns>(
      sums, query0 + 16 * warp, o.seq, o.dim, dqueries, [&](int s) { return o.query_at(b, h, s); },
      [&](int, float sum, const T& before) { return sum + (add ? wide(before) : 0); });
}

// Grid: (blocks of kTile keys, kv heads, batch). All query heads of the group add into one key and value.
// dkeys and dvalues: as keys and values lie; rows from key_count on become zero.
template <class T, int Columns>
__global__ void __launch_bounds__(kThreads, Columns == 64 ? 3 : 2)
    dkv_kernel(AttentionLayout o, Tensors<T> in, const float* statistics, const float* delta, T* dkeys,
               T* dvalues) {
  auto* keys = reinterpret_cast<unsigned*>(shared_floats());
  unsigned* values = keys + kTileWords<Columns>;
  unsigned* tiles = values + kTileWords<Columns>;  // queries and gradients, twice
  auto* sums_of_rows = reinterpret_cast<float*>(tiles + 4 * kTileWords<Columns>);  // and shifts, twice
  const int kv = blockIdx.y;
  const int b = blockIdx.z;
  const int warp = threadIdx.x / 32;
  const int g = threadIdx.x % 32 / 4;
  const int t = threadIdx.x % 4;
  const int group = o.heads / o.kv_heads;
  const int key0 = static_cast<int>(blockIdx.x) * kTile;
  const int own = key0 + 16 * warp + g;
  const int begin = (o.causal ? max(key0, o.query_begin) : o.query_begin) / kTile * kTile;
  const int end = key0 >= o.key_count ? 0 : o.window == 0 ? o.seq : min(o.seq, key0 + kTile - 1 + o.window);
  const int blocks =
      end > begin ? (end - begin + kTile - 1) / kTile : 0;  // of queries, of each head of the group
  const auto fetch = [&](int step) {
    if (step < group * blocks) {
      const int h = kv * group + step / blocks;
      const int query0 = begin + step % blocks * kTile;
      unsigned* to = tiles + step % 2 * 2 * kTileWords<Columns>;
      copy_tile<Columns>(to, in.queries, b, h, query0);
      copy_tile<Columns>(to + kTileWords<Columns>, in.gradients, b, h, query0);
      float* row = sums_of_rows + step % 2 * 2 * kTile;
      for (int i = threadIdx.x; i < kTile; i += kThreads) {
        const bool inside = query0 + i < o.seq;
        row[i] = inside ? kLog2e * statistics[o.statistic_at(b, h, query0 + i)] : 0;
        row[kTile + i] = inside ? delta[o.statistic_at(b, h, query0 + i)] : 0;
      }
    }
    end_group_of_copies();
  };
  copy_tile<Columns>(keys, in.keys, b, kv, key0);
  copy_tile<Columns>(values, in.values, b, kv, key0);
  fetch(0);
  float dk[Columns / 8][4] = {};
  float dv[Columns / 8][4] = {};
  for (int step = 0; step < group * blocks; ++step) {
    const int h = kv * group + step / blocks;
    const int query0 = begin + step % blocks * kTile;
    const unsigned* queries = tiles + step % 2 * 2 * kTileWords<Columns>;
    const unsigned* gradients = queries + kTileWords<Columns>;
    const float* log_sums = sums_of_rows + step % 2 * 2 * kTile;
    const float* shifts = log_sums + kTile;
    fetch(step + 1);
    wait_for_copies<1>();
    __syncthreads();
    Scores weights;
    rows_by_rows<T, Columns>(weights, keys, 16 * warp, queries);
    Scores dp;
    rows_by_rows<T, Columns>(dp, values, 16 * warp, gradients);
    const bool all = all_seen(o, query0, key0);
    ORRERY_UNROLL
    for (int n = 0; n < kTile / 8; ++n) ORRERY_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int at = 8 * n + 2 * t + i % 2;
      const int query = query0 + at;
      const int key = own + 8 * (i / 2);
      const bool seen = all || o.sees(query, key);
      const float kept = seen && o.threshold != 0 ? o.kept(b, h, query, key) : 1;
      const Both both =
          seen ? both_of(o, weights[n][i], dp[n][i], log_sums[at], shifts[at], kept) : Both{0, 0};
      weights[n][i] = both.weight;
      dp[n][i] = both.gradient;
    }
    add_weighted_rows<T, Columns>(dv, weights, gradients);
    add_weighted_rows<T, Columns>(dk, dp, queries);
    __syncthreads();
  }
  wait_for_copies<0>();
  const auto write = [&](const float(&sums)[Columns / 8][4], T* to) {
    write_sums<Columns>(
        sums, key0 + 16 * warp, o.seq, o.dim, to, [&](int s) { return o.key_at(b, kv, s); },
        [](int, float sum, const T&) { return sum; });
  };
  write(dk, dkeys);
  write(dv, dvalues);
}

// Of shared memory: tiles, and floats beside them.
template <int Columns>
std::size_t shared_bytes(int tiles, int floats) {
  return static_cast<std::size_t>(tiles) * kTileWords<Columns> * sizeof(unsigned) +
         static_cast<std::size_t>(floats) * sizeof(float);
}
constexpr int kMostTiles = 6;
constexpr int kMostFloats = 4 * kTile;

// Sets head by head what a tensor's heads are, copied into memory from `scratch` on where it cannot be read
// as it lies.
template <class T>
class Reader {
 public:
  Reader(const AttentionLayout& o, int batch, void* scratch, cudaStream_t stream)
      : o_(o), batch_(batch), next_(static_cast<T*>(scratch)), stream_(stream) {}

  Heads<T> heads(const T* from, std::int64_t stride, int heads, int rows) {
    if (o_.dim % kPiece<T> == 0 && aligned(from))
      return {from, o_.seq * stride, o_.dim, stride, rows, o_.dim};
    const int columns = copied_columns(o_.dim);
    copy_heads(from, stride, batch_, heads, o_.seq, rows, o_.dim, next_, stream_);
    const std::int64_t of_head = static_cast<std::int64_t>(rows) * columns;
    const Heads<T> result{next_, heads * of_head, of_head, columns, rows, columns};
    next_ += batch_ * heads * of_head;
    return result;
  }

 private:
  const AttentionLayout& o_;
  int batch_;
  T* next_;
  cudaStream_t stream_;
};

// dout: may be null.
template <class T>
Tensors<T> tensors_of(const AttentionOperands<T>& o, int batch, const T* dout, void* scratch,
                      cudaStream_t stream) {
  Reader<T> reader(o, batch, scratch, stream);
  Tensors<T> in{};
  in.queries = reader.heads(o.queries, o.query_stride, o.heads, o.seq);
  in.keys = reader.heads(o.keys, o.key_stride, o.kv_heads, o.key_count);
  in.values = reader.heads(o.values, o.key_stride, o.kv_heads, o.key_count);
  if (dout != nullptr)
    in.gradients = reader.heads(dout, static_cast<std::int64_t>(o.heads) * o.dim, o.heads, o.seq);
  return in;
}

template <class T, int Columns>
void forward(const AttentionOperands<T>& o, int batch, bool joins, T* out, float* statistics, void* scratch,
             cudaStream_t stream) {
  const Tensors<T> in = tensors_of<T>(o, batch, nullptr, scratch, stream);
  const AttentionLayout& layout = o;
  const auto kernel = forward_kernel<T, Columns>;
  launch(kernel, attention_grid(o.seq - o.query_begin, kTile, o.heads, batch), kThreads,
         allow_shared(kernel, shared_bytes<Columns>(5, 0)), stream, layout, in, joins, out, statistics);
}

template <class T, int Columns>
void backward(const AttentionOperands<T>& o, int batch, const T* dout, const float* statistics,
              const float* delta, const AttentionGradients<T>& gradients, void* scratch,
              cudaStream_t stream) {
  const Tensors<T> in = tensors_of<T>(o, batch, dout, scratch, stream);
  const AttentionLayout& layout = o;
  const auto dq = dq_kernel<T, Columns>;
  if (o.seq > o.query_begin)
    launch(dq, attention_grid(o.seq - o.query_begin, kTile, o.heads, batch), kThreads,
           allow_shared(dq, shared_bytes<Columns>(kMostTiles, 0)), stream, layout, in, statistics, delta,
           gradients.queries, gradients.add_to_queries);
  const auto dkv = dkv_kernel<T, Columns>;
  launch(dkv, attention_grid(o.seq, kTile, o.kv_heads, batch), kThreads,
         allow_shared(dkv, shared_bytes<Columns>(kMostTiles, kMostFloats)), stream, layout, in, statistics,
         delta, gradients.keys, gradients.values);
}

}  // namespace

bool tensor_cores_attend(DType type, int head_dim) {
  if ((type != DType::bf16 && type != DType::fp16) || head_dim > kMaxColumns) return false;
  int device = 0;
  int bytes = 0;
  ORRERY_CUDA(cudaGetDevice(&device));
  ORRERY_CUDA(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  const std::size_t needed = padded_columns(head_dim) == 64
                                 ? shared_bytes<64>(kMostTiles, kMostFloats)
                                 : shared_bytes<kMaxColumns>(kMostTiles, kMostFloats);
  return needed <= static_cast<std::size_t>(bytes);
}

std::size_t tensor_attention_scratch_bytes(const AttentionSize& size, bool aligned, bool backward) {
  if (aligned && size.head_dim % kPiece<Bf16> == 0) return 0;
  const std::int64_t heads = (backward ? 2 : 1) * size.heads + 2 * size.kv_heads;
  return sizeof(Bf16) *
         static_cast<std::size_t>(size.batch * heads * size.seq * copied_columns(size.head_dim));
}

template <class T>
void tensor_attention_forward(const AttentionOperands<T>& o, int batch, bool joins, T* out, float* statistics,
                              void* scratch, cudaStream_t stream) {
  const auto run = padded_columns(o.dim) == 64 ? forward<T, 64> : forward<T, kMaxColumns>;
  run(o, batch, joins, out, statistics, scratch, stream);
}

template <class T>
void tensor_attention_backward(const AttentionOperands<T>& o, int batch, const T* dout,
                               const float* statistics, const float* delta,
                               const AttentionGradients<T>& gradients, void* scratch, cudaStream_t stream) {
  const auto run = padded_columns(o.dim) == 64 ? backward<T, 64> : backward<T, kMaxColumns>;
  run(o, batch, dout, statistics, delta, gradients, scratch, stream);
}

#define ORRERY_TENSOR_ATTENTION(T) \
  template void tensor_attention_forward(const AttentionOperands<T>&, int, bool, T*, float*, void*, \
                                         cudaStream_t); \
  template void tensor_attention_backward(const AttentionOperands<T>&, int, const T*, const float*, \
                                          const float*, const AttentionGradients<T>&, void*, cudaStream_t);
ORRERY_TENSOR_ATTENTION(Bf16)
ORRERY_TENSOR_ATTENTION(Fp16)
#undef ORRERY_TENSOR_ATTENTION

}  // namespace orrery::exec::kernels
