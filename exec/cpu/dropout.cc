#include "exec/cpu/dropout.h"

#include <algorithm>

#include "base/vectors/clones.h"
#include "exec/cpu/kernels.h"

namespace orrery::exec::cpu {
namespace {

struct Fate {
  std::uint64_t state;
  std::uint32_t threshold;
  float scale;
  std::uint32_t first;

  ORRERY_INLINE float factor(std::uint32_t column) const {
    return dropout_bits(state, first + column) >= threshold ? scale : 0.0F;
  }
};

// A row of which all is kept: no bits are below 0.
Fate fate_of(std::uint64_t key, std::uint64_t place, double rate, std::uint32_t first_column = 0) {
  if (key == kKeepsAll) return {0, 0, 1.0F, 0};
  return {key ^ place, dropout_threshold(rate), dropout_scale(rate), first_column};
}

ORRERY_CLONES void drop_row(Fate fate, const float* x, float* y, std::int64_t columns) {
#pragma omp simd
  for (std::int64_t c = 0; c < columns; ++c) {
    const float factor = fate.factor(static_cast<std::uint32_t>(c));
    y[c] = factor == 0.0F ? 0.0F : x[c] * factor;
  }
}

ORRERY_CLONES void drop_residual_row(Fate fate, const float* branch, const float* bias, const float* stream,
                                     float* out, std::int64_t columns) {
  if (bias != nullptr) {
#pragma omp simd
    for (std::int64_t c = 0; c < columns; ++c)
      out[c] = (branch[c] + bias[c]) * fate.factor(static_cast<std::uint32_t>(c)) + stream[c];
  } else {
#pragma omp simd
    for (std::int64_t c = 0; c < columns; ++c)
      out[c] = branch[c] * fate.factor(static_cast<std::uint32_t>(c)) + stream[c];
  }
}

ORRERY_CLONES void factors_of(Fate fate, std::uint32_t first, int count, float* factors) {
#pragma omp simd
  for (int i = 0; i < count; ++i) factors[i] = fate.factor(first + static_cast<std::uint32_t>(i));
}

}  // namespace

void dropout(const Dropout& of, const float* x, float* y, std::int64_t rows, std::int64_t columns) {
  for (std::int64_t r = 0; r < rows; ++r)
    drop_row(fate_of(of.rows[r], of.place, of.rate, of.first_column), x + r * columns, y + r * columns,
             columns);
}

void dropout_residual(const Dropout& of, const float* branch, const float* bias, const float* stream,
                      float* out, std::int64_t rows, std::int64_t columns) {
  for (std::int64_t r = 0; r < rows; ++r)
    drop_residual_row(fate_of(of.rows[r], of.place, of.rate, of.first_column), branch + r * columns, bias,
                      stream + r * columns, out + r * columns, columns);
}

void AttentionMask::choose(int batch, int head, int query, int first, int count) {
  const AttentionDropout& d = size_.dropout;
  const std::int64_t row = static_cast<std::int64_t>(batch) * size_.seq + query;
  const Fate fate =
      fate_of(d.all.rows[row], dropout_place_of_head(d.all.place, d.first_head + head), d.all.rate);
  count_ = count;
  const int end = first + count;
  const int cut = std::clamp(d.run, first, end);
  factors_of(fate, static_cast<std::uint32_t>(d.first[0] + first), cut - first, factors_.data());
  factors_of(fate, static_cast<std::uint32_t>(d.first[1] + cut - d.run), end - cut,
             factors_.data() + (cut - first));
}

void AttentionMask::apply(float* values) const {
  multiply(values, factors_.data(), static_cast<std::size_t>(count_));
}

}  // namespace orrery::exec::cpu
