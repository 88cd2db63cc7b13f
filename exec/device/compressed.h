// How compressed gradients travel (program/lower/compression.cc says when).
//
//   fp16  n half-precision values, times kHalfScale: summed on the way
//   int8  n signed bytes, then an fp32 scale for each kQuantizedBlock of them (largest magnitude / 127)
//   topk  ceil(ratio * n) SparseEntry, in order of index
//
// int8 and topk add what earlier steps left out, and keep what this one leaves out (error feedback).
#pragma once

#include <cstddef>
#include <cstdint>

namespace orrery::exec {

constexpr std::size_t kQuantizedBlock = 1024;
// Gradients of a mean over many tokens are small: without it most would be subnormal in half precision. A
// sum of 64 in one element would saturate.
constexpr float kHalfScale = 1024;

struct SparseEntry {
  std::int32_t index = 0;
  float value = 0;
};

}  // namespace orrery::exec
