// Gradient compression: how a bucket's gradients travel (program/lower_compression.cc says when).
//
//   fp16  n half-precision values, times kHalfScale: summed on the way
//   int8  n signed bytes, then an fp32 scale for each kQuantizedBlock of them (largest magnitude / 127)
//   topk  ceil(ratio * n) SparseEntry, in order of index
//
// int8 and topk add what earlier steps left out, and keep what this one leaves out (error feedback).
#pragma once

#include <cstdint>
#include <vector>

#include "exec/device.h"
#include "exec/parameters.h"
#include "program/plan.h"

namespace orrery::exec {

constexpr std::size_t kQuantizedBlock = 1024;
// Gradients of a mean over many tokens are small: without it most would be subnormal in half precision. A
// sum of 64 in one element would saturate.
constexpr float kHalfScale = 1024;

struct SparseEntry {
  std::int32_t index = 0;
  float value = 0;
};

// What was left out of a bucket's gradients.
struct LeftOut {
  float* data = nullptr;
  std::int64_t elements = 0;
};

class Compressor {
 public:
  // Keeps references. Allocates the memory of what is left out.
  Compressor(const Plan& plan, const Parameters& parameters, Device& device);
  ~Compressor();
  Compressor(const Compressor&) = delete;
  Compressor& operator=(const Compressor&) = delete;

  std::size_t payload_bytes(int bucket) const;
  // `into`: payload_bytes.
  void pack(int bucket, void* into);
  // Makes the payloads of `members`, one after another, the gradients of the bucket. fp16: one payload, the
  // sum, of this rank's part alone where the bucket is sharded.
  void unpack(int bucket, const void* from, int members);

  // What was left out so far, of the buckets where something is kept.
  std::vector<LeftOut> left_out() const;

 private:
  const Choices& choices_;
  const Parameters& parameters_;
  Device& device_;
  std::vector<float*> left_out_;  // by bucket; null where nothing is kept
};

}  // namespace orrery::exec
