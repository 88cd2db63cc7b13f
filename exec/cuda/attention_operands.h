// What one softmax attention reads, and where: queries [query_begin, seq) of each sequence against its keys
// [0, key_count).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <string>

#include "base/error.h"
#include "exec/cuda/check.h"
#include "exec/cuda/kernels.h"
#include "exec/device/dropout.h"

namespace orrery::exec::kernels {

// Strides are elements from one row to the next.
struct AttentionLayout {
  std::int64_t query_stride;
  std::int64_t key_stride;
  int seq;
  int heads;
  int kv_heads;
  int dim;
  int query_begin;
  int key_count;
  bool causal;
  int window;  // causal: keys back from the query, itself included; 0: all
  float scale;
  float cap;  // 0: none
  // Of the probabilities (exec/device/dropout.h); a threshold of 0 leaves nothing out.
  const std::uint64_t* row_keys;
  std::uint64_t place;
  std::uint32_t threshold;
  float kept_scale;
  int first_head, run, first_key[2];

  // A score as softmax gets it, and the derivative by what goes in.
  __device__ float capped(float score) const { return cap > 0 ? cap * tanhf(score / cap) : score; }
  __device__ float slope(float capped_score) const {
    const float t = cap > 0 ? capped_score / cap : 0;
    return 1 - t * t;
  }

  // By what the probability of a key is multiplied.
  __device__ float kept(int b, int h, int query, int key) const {
    if (threshold == 0) return 1;
    const std::uint64_t row = row_keys[static_cast<std::int64_t>(b) * seq + query];
    if (row == kKeepsAll) return 1;
    const int position = key < run ? first_key[0] + key : first_key[1] + key - run;
    const std::uint64_t state = row ^ dropout_place_of_head(place, first_head + h);
    return dropout_bits(state, static_cast<std::uint32_t>(position)) >= threshold ? kept_scale : 0;
  }

  __device__ std::int64_t query_at(int b, int h, int s) const {
    return (static_cast<std::int64_t>(b) * seq + s) * query_stride + static_cast<std::int64_t>(h) * dim;
  }
  __device__ std::int64_t key_at(int b, int kv, int s) const {
    return (static_cast<std::int64_t>(b) * seq + s) * key_stride + static_cast<std::int64_t>(kv) * dim;
  }
  __device__ std::int64_t out_at(int b, int h, int s) const {
    return ((static_cast<std::int64_t>(b) * seq + s) * heads + h) * dim;
  }
  __device__ std::int64_t statistic_at(int b, int h, int s) const {
    return (static_cast<std::int64_t>(b) * heads + h) * seq + s;
  }
  __device__ bool sees(int query, int key) const {
    return query >= query_begin && query < seq && key < key_count && (!causal || key <= query) &&
           (window == 0 || key > query - window);
  }
};

// `queries`, `keys` and `values` point at the first head of the first row.
template <class T>
struct AttentionOperands : AttentionLayout {
  const T* queries;
  const T* keys;
  const T* values;
};

// ---- On the host ----

inline AttentionLayout layout_of(const AttentionSize& l) {
  if (l.head_dim > kMaxHeadDim || l.head_dim <= 0)
    throw UserError(
        "head dimension " + std::to_string(l.head_dim) + " is not supported by the CUDA attention",
        "expected 1 to " + std::to_string(kMaxHeadDim));
  AttentionLayout o{};
  o.query_stride = l.qkv_columns();
  o.seq = o.key_count = l.seq;
  o.heads = l.heads;
  o.kv_heads = l.kv_heads;
  o.dim = l.head_dim;
  o.causal = l.causal;
  o.window = l.causal ? l.window : 0;
  o.scale = l.score_scale();
  o.cap = l.softcap;
  const AttentionDropout& d = l.dropout;
  if (d.all.rate > 0) {
    o.row_keys = d.all.rows;
    o.place = d.all.place;
    o.threshold = dropout_threshold(d.all.rate);
    o.kept_scale = dropout_scale(d.all.rate);
    o.first_head = d.first_head;
    o.run = d.run;
    o.first_key[0] = d.first[0];
    o.first_key[1] = d.first[1];
  }
  return o;
}

// Queries, keys and values side by side in one row.
template <class T>
AttentionOperands<T> packed(const AttentionSize& l, const T* qkv) {
  AttentionOperands<T> o{layout_of(l), nullptr, nullptr, nullptr};
  o.queries = qkv;
  o.keys = qkv + static_cast<std::int64_t>(l.heads) * l.head_dim;
  o.values = o.keys + static_cast<std::int64_t>(l.kv_heads) * l.head_dim;
  o.key_stride = o.query_stride;
  return o;
}

template <class T>
AttentionOperands<T> of_block(const AttentionBlock& block, const T* qkv, const T* keys, const T* values) {
  AttentionOperands<T> o{layout_of(block.size), nullptr, nullptr, nullptr};
  o.queries = qkv;
  o.keys = keys;
  o.values = values;
  o.key_stride = static_cast<std::int64_t>(o.kv_heads) * o.dim;
  o.query_begin = block.query_begin;
  o.key_count = block.keys;
  o.causal = false;  // what a block holds is seen in whole
  return o;
}

// Where backward's results go.
template <class T>
struct AttentionGradients {
  T* queries;
  bool add_to_queries;
  T* keys;  // these and `values` lie as keys and values do; rows from key_count on become zero
  T* values;
};

// Blocks of so many rows, heads and samples.
inline dim3 attention_grid(int rows, int rows_of_block, int heads, int batch) {
  return {static_cast<unsigned>((rows + rows_of_block - 1) / rows_of_block), static_cast<unsigned>(heads),
          static_cast<unsigned>(batch)};
}

// Returns the bytes, which blocks of the kernel may ask for from now on.
template <class Kernel>
std::size_t allow_shared(Kernel kernel, std::size_t bytes) {
  ORRERY_CUDA(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
  return bytes;
}

}  // namespace orrery::exec::kernels
