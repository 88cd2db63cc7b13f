// Blocks of ring attention on the CPU: no mask inside a block, whole or half of the queries or keys.
#include <algorithm>
#include <cmath>
#include <vector>

#include "exec/cpu/attention.h"
#include "exec/cpu/dropout.h"
#include "exec/cpu/gemm.h"
#include "exec/cpu/kernels.h"

namespace orrery::exec::cpu {
namespace {

// Where one head of one sequence begins in each tensor.
struct HeadAt {
  std::int64_t queries;     // in qkv and dqkv
  std::int64_t keys;        // in keys, values and their gradients
  std::int64_t out;         // in out and dout
  std::int64_t statistics;  // in statistics
};

HeadAt head_at(const AttentionSize& s, int batch, int head) {
  const std::int64_t rows = static_cast<std::int64_t>(batch) * s.seq;
  const int shared = head / (s.heads / s.kv_heads);
  return {rows * s.qkv_columns() + static_cast<std::int64_t>(head) * s.head_dim,
          (rows * s.kv_heads + shared) * s.head_dim, (rows * s.heads + head) * s.head_dim,
          (static_cast<std::int64_t>(batch) * s.heads + head) * s.seq};
}

}  // namespace

void attention_block_forward(const AttentionBlock& block, const float* qkv, const float* keys,
                             const float* values, float* out, float* statistics) {
  const AttentionSize& s = block.size;
  const int stride = s.qkv_columns();
  const int key_stride = s.kv_heads * s.head_dim;
  const int width = s.heads * s.head_dim;
  const float scale = s.score_scale();
  std::vector<float> scores(static_cast<std::size_t>(kQueryBlock) * block.keys);
  std::vector<float> result(static_cast<std::size_t>(kQueryBlock) * s.head_dim);
  AttentionMask mask(s);
  for (int b = 0; b < s.batch; ++b) {
    for (int h = 0; h < s.heads; ++h) {
      const HeadAt at = head_at(s, b, h);
      for (int begin = block.query_begin; begin < s.seq; begin += kQueryBlock) {
        const int queries = std::min(kQueryBlock, s.seq - begin);
        gemm(false, true, queries, block.keys, s.head_dim, scale,
             qkv + at.queries + static_cast<std::int64_t>(begin) * stride, stride, keys + at.keys, key_stride,
             0, scores.data(), block.keys);
        std::vector<float> sums(static_cast<std::size_t>(queries));
        for (int i = 0; i < queries; ++i) {
          float* row = scores.data() + static_cast<std::int64_t>(i) * block.keys;
          if (s.softcap > 0) softcap(s.softcap, row, nullptr, static_cast<std::size_t>(block.keys));
          sums[static_cast<std::size_t>(i)] = softmax_row(row, block.keys, block.keys);
          if (!mask.on()) continue;
          mask.choose(b, h, begin + i, 0, block.keys);
          mask.apply(row);
        }
        gemm(false, false, queries, s.head_dim, block.keys, 1, scores.data(), block.keys, values + at.keys,
             key_stride, 0, result.data(), s.head_dim);
        for (int i = 0; i < queries; ++i) {
          float& before = statistics[at.statistics + begin + i];
          const float now = sums[static_cast<std::size_t>(i)];
          const float most = std::max(before, now);
          const float joined = most + std::log(std::exp(before - most) + std::exp(now - most));
          const float keep = std::exp(before - joined);
          const float take = std::exp(now - joined);
          before = joined;
          float* row = out + at.out + static_cast<std::int64_t>(begin + i) * width;
          const float* more = result.data() + static_cast<std::int64_t>(i) * s.head_dim;
          for (int d = 0; d < s.head_dim; ++d) row[d] = keep * row[d] + take * more[d];
        }
      }
    }
  }
}

void attention_block_backward(const AttentionBlock& block, const float* qkv, const float* keys,
                              const float* values, const float* out, const float* dout,
                              const float* statistics, float* dqkv, float* dkeys, float* dvalues) {
  const AttentionSize& s = block.size;
  const int stride = s.qkv_columns();
  const int key_stride = s.kv_heads * s.head_dim;
  const int width = s.heads * s.head_dim;
  const float scale = s.score_scale();
  std::vector<float> scores(static_cast<std::size_t>(kQueryBlock) * block.keys);
  std::vector<float> dscores(scores.size());
  std::vector<float> slopes(s.softcap > 0 ? static_cast<std::size_t>(block.keys) : 0);
  AttentionMask mask(s);
  const auto elements = static_cast<std::size_t>(s.batch) * static_cast<std::size_t>(s.seq) *
                        static_cast<std::size_t>(key_stride);
  fill(dkeys, elements, 0);
  fill(dvalues, elements, 0);
  for (int b = 0; b < s.batch; ++b) {
    for (int h = 0; h < s.heads; ++h) {
      const HeadAt at = head_at(s, b, h);
      for (int begin = block.query_begin; begin < s.seq; begin += kQueryBlock) {
        const int queries = std::min(kQueryBlock, s.seq - begin);
        const float* q = qkv + at.queries + static_cast<std::int64_t>(begin) * stride;
        const float* o = out + at.out + static_cast<std::int64_t>(begin) * width;
        const float* d = dout + at.out + static_cast<std::int64_t>(begin) * width;
        gemm(false, true, queries, block.keys, s.head_dim, scale, q, stride, keys + at.keys, key_stride, 0,
             scores.data(), block.keys);
        gemm(false, true, queries, block.keys, s.head_dim, 1, d, width, values + at.keys, key_stride, 0,
             dscores.data(), block.keys);
        for (int i = 0; i < queries; ++i) {
          const std::int64_t row = static_cast<std::int64_t>(i) * width;
          const auto delta = static_cast<float>(dot(o + row, d + row, static_cast<std::size_t>(s.head_dim)));
          float* score = scores.data() + static_cast<std::int64_t>(i) * block.keys;
          float* dscore = dscores.data() + static_cast<std::int64_t>(i) * block.keys;
          if (mask.on()) {
            mask.choose(b, h, begin + i, 0, block.keys);
            mask.apply(dscore);
          }
          const auto count = static_cast<std::size_t>(block.keys);
          if (s.softcap > 0) softcap(s.softcap, score, slopes.data(), count);
          softmax_backward_row(score, dscore, statistics[at.statistics + begin + i], delta, scale, block.keys,
                               block.keys);
          if (s.softcap > 0) multiply(dscore, slopes.data(), count);
          if (mask.on()) mask.apply(score);
        }
        gemm(true, false, block.keys, s.head_dim, queries, 1, scores.data(), block.keys, d, width, 1,
             dvalues + at.keys, key_stride);
        gemm(true, false, block.keys, s.head_dim, queries, 1, dscores.data(), block.keys, q, stride, 1,
             dkeys + at.keys, key_stride);
        gemm(false, false, queries, s.head_dim, block.keys, 1, dscores.data(), block.keys, keys + at.keys,
             key_stride, 1, dqkv + at.queries + static_cast<std::int64_t>(begin) * stride, stride);
      }
    }
  }
}

}  // namespace orrery::exec::cpu
