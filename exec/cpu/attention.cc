#include "exec/cpu/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "exec/cpu/dropout.h"
#include "exec/cpu/gemm.h"
#include "exec/cpu/kernels.h"

namespace orrery::exec::cpu {
namespace {

// Pointers into one sequence's rows, and one head's columns of them.
struct Head {
  const float* q;
  const float* k;
  const float* v;
};

Head head_of(const AttentionSize& s, const float* qkv, int batch, int head) {
  const std::int64_t row = static_cast<std::int64_t>(batch) * s.seq * s.qkv_columns();
  const int shared = head / (s.heads / s.kv_heads);
  return {qkv + row + static_cast<std::int64_t>(head) * s.head_dim,
          qkv + row + static_cast<std::int64_t>(s.heads + shared) * s.head_dim,
          qkv + row + static_cast<std::int64_t>(s.heads + s.kv_heads + shared) * s.head_dim};
}

// Queries [begin, begin + queries) and the keys that any of them sees: [first, first + keys).
struct Block {
  int begin = 0;
  int queries = 0;
  int first = 0;
  int keys = 0;

  // Of query `i` of the block: the keys that it sees, counted from `first`.
  int from(const AttentionSize& s, int i) const {
    return s.window > 0 ? std::max(0, begin + i + 1 - s.window - first) : 0;
  }
  int until(const AttentionSize& s, int i) const { return s.causal ? begin + i + 1 - first : keys; }
};

Block block_at(const AttentionSize& s, int begin) {
  Block block{begin, std::min(kQueryBlock, s.seq - begin), 0, s.seq};
  if (s.window > 0) block.first = std::max(0, begin + 1 - s.window);
  if (s.causal) block.keys = begin + block.queries - block.first;
  return block;
}

}  // namespace

void attention_forward(const AttentionSize& s, const float* qkv, float* out, float* statistics) {
  const int stride = s.qkv_columns();
  const int width = s.heads * s.head_dim;
  const float scale = s.score_scale();
  std::vector<float> scores(static_cast<std::size_t>(kQueryBlock) * s.seq);
  AttentionMask mask(s);
  for (int b = 0; b < s.batch; ++b) {
    for (int h = 0; h < s.heads; ++h) {
      const Head head = head_of(s, qkv, b, h);
      float* statistic = statistics + (static_cast<std::int64_t>(b) * s.heads + h) * s.seq;
      float* result = out + static_cast<std::int64_t>(b) * s.seq * width + h * s.head_dim;
      for (int begin = 0; begin < s.seq; begin += kQueryBlock) {
        const Block block = block_at(s, begin);
        const int queries = block.queries;
        const int keys = block.keys;
        const std::int64_t skipped = static_cast<std::int64_t>(block.first) * stride;
        gemm(false, true, queries, keys, s.head_dim, scale,
             head.q + static_cast<std::int64_t>(begin) * stride, stride, head.k + skipped, stride, 0,
             scores.data(), keys);
        for (int i = 0; i < queries; ++i) {
          float* row = scores.data() + static_cast<std::int64_t>(i) * keys;
          const int from = block.from(s, i);
          std::fill_n(row, from, 0.0F);
          const int seen = block.until(s, i) - from;
          if (s.softcap > 0) softcap(s.softcap, row + from, nullptr, static_cast<std::size_t>(seen));
          statistic[begin + i] = softmax_row(row + from, seen, keys - from);
          if (!mask.on()) continue;
          mask.choose(b, h, begin + i, block.first + from, seen);
          mask.apply(row + from);
        }
        gemm(false, false, queries, s.head_dim, keys, 1, scores.data(), keys, head.v + skipped, stride, 0,
             result + static_cast<std::int64_t>(begin) * width, width);
      }
    }
  }
}

void attention_backward(const AttentionSize& s, const float* qkv, const float* out, const float* dout,
                        const float* statistics, float* dqkv) {
  const int stride = s.qkv_columns();
  const int width = s.heads * s.head_dim;
  const float scale = s.score_scale();
  std::vector<float> scores(static_cast<std::size_t>(kQueryBlock) * s.seq);
  std::vector<float> dscores(scores.size());
  std::vector<float> slopes(s.softcap > 0 ? static_cast<std::size_t>(s.seq) : 0);
  AttentionMask mask(s);
  // Keys and values collect from every block and query head; queries are set.
  const std::int64_t rows = static_cast<std::int64_t>(s.batch) * s.seq;
  for (std::int64_t r = 0; r < rows; ++r)
    std::memset(dqkv + r * stride + width, 0,
                sizeof(float) * 2 * static_cast<std::size_t>(s.kv_heads) * s.head_dim);
  for (int b = 0; b < s.batch; ++b) {
    for (int h = 0; h < s.heads; ++h) {
      const Head head = head_of(s, qkv, b, h);
      const Head at = head_of(s, dqkv, b, h);
      auto* dq = const_cast<float*>(at.q);
      auto* dk = const_cast<float*>(at.k);
      auto* dv = const_cast<float*>(at.v);
      const float* statistic = statistics + (static_cast<std::int64_t>(b) * s.heads + h) * s.seq;
      const std::int64_t base = static_cast<std::int64_t>(b) * s.seq * width + h * s.head_dim;
      for (int begin = 0; begin < s.seq; begin += kQueryBlock) {
        const Block block = block_at(s, begin);
        const int queries = block.queries;
        const int keys = block.keys;
        const std::int64_t skipped = static_cast<std::int64_t>(block.first) * stride;
        const float* q = head.q + static_cast<std::int64_t>(begin) * stride;
        const float* o = out + base + static_cast<std::int64_t>(begin) * width;
        const float* d = dout + base + static_cast<std::int64_t>(begin) * width;
        gemm(false, true, queries, keys, s.head_dim, scale, q, stride, head.k + skipped, stride, 0,
             scores.data(), keys);
        gemm(false, true, queries, keys, s.head_dim, 1, d, width, head.v + skipped, stride, 0, dscores.data(),
             keys);
        for (int i = 0; i < queries; ++i) {
          const std::int64_t row = static_cast<std::int64_t>(i) * width;
          const auto delta = static_cast<float>(dot(o + row, d + row, s.head_dim));
          const int from = block.from(s, i);
          float* score = scores.data() + static_cast<std::int64_t>(i) * keys;
          float* dscore = dscores.data() + static_cast<std::int64_t>(i) * keys;
          std::fill_n(score, from, 0.0F);
          std::fill_n(dscore, from, 0.0F);
          const int seen = block.until(s, i) - from;
          if (mask.on()) {
            mask.choose(b, h, begin + i, block.first + from, seen);
            mask.apply(dscore + from);
          }
          const auto count = static_cast<std::size_t>(seen);
          if (s.softcap > 0) softcap(s.softcap, score + from, slopes.data(), count);
          softmax_backward_row(score + from, dscore + from, statistic[begin + i], delta, scale, seen,
                               keys - from);
          if (s.softcap > 0) multiply(dscore + from, slopes.data(), count);
          if (mask.on()) mask.apply(score + from);
        }
        gemm(true, false, keys, s.head_dim, queries, 1, scores.data(), keys, d, width, 1, dv + skipped,
             stride);
        gemm(true, false, keys, s.head_dim, queries, 1, dscores.data(), keys, q, stride, 1, dk + skipped,
             stride);
        gemm(false, false, queries, s.head_dim, keys, 1, dscores.data(), keys, head.k + skipped, stride, 0,
             dq + static_cast<std::int64_t>(begin) * stride, stride);
      }
    }
  }
}

}  // namespace orrery::exec::cpu
