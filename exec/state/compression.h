// A bucket's gradients packed for travelling compressed, and what is left out of them kept for the next step
// (exec/device/compressed.h has the formats).
#pragma once

#include <cstdint>
#include <vector>

#include "exec/device/compressed.h"
#include "exec/device/device.h"
#include "exec/state/parameters.h"
#include "program/plan.h"

namespace orrery::exec {

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
