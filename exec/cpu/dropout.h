// Dropout on the CPU: the elements' fates drawn again wherever they are asked for.
#pragma once

#include <cstdint>
#include <vector>

#include "exec/device/device.h"

namespace orrery::exec::cpu {

// y = x where it is kept, scaled, and 0 elsewhere; y may be x.
void dropout(const Dropout& of, const float* x, float* y, std::int64_t rows, std::int64_t columns);
// out = (branch + bias (may be null)) so, + stream; out may be branch or stream.
void dropout_residual(const Dropout& of, const float* branch, const float* bias, const float* stream,
                      float* out, std::int64_t rows, std::int64_t columns);

// By what an attention's probabilities of one query are multiplied.
class AttentionMask {
 public:
  explicit AttentionMask(const AttentionSize& size)
      : size_(size), factors_(size.dropout.all.rate > 0 ? static_cast<std::size_t>(size.seq) : 0) {}
  bool on() const { return !factors_.empty(); }
  // For keys [first, first + count) of `query` (a row of sequence `batch`), in this rank's numbers of rows
  // and heads.
  void choose(int batch, int head, int query, int first, int count);
  // The values of these keys.
  void apply(float* values) const;

 private:
  const AttentionSize& size_;
  std::vector<float> factors_;
  int count_ = 0;
};

}  // namespace orrery::exec::cpu
