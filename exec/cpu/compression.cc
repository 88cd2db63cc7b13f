#include "exec/cpu/compression.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "exec/cpu/kernels.h"
#include "exec/device/compressed.h"

namespace orrery::exec::cpu {

void quantize(const float* gradient, float* error, std::byte* payload, std::size_t count) {
  auto* values = reinterpret_cast<std::int8_t*>(payload);
  std::byte* scales = payload + count;  // of any alignment
  for (std::size_t begin = 0; begin < count; begin += kQuantizedBlock) {
    const std::size_t end = std::min(count, begin + kQuantizedBlock);
    float largest = 0;
    for (std::size_t i = begin; i < end; ++i) {
      error[i] += gradient[i];
      largest = std::max(largest, std::abs(error[i]));
    }
    const float scale = largest / 127.0F;
    const float inverse = scale > 0 ? 1 / scale : 0;
    for (std::size_t i = begin; i < end; ++i) {
      const float q = std::clamp(std::nearbyint(error[i] * inverse), -127.0F, 127.0F);
      values[i] = static_cast<std::int8_t>(q);
      error[i] -= q * scale;
    }
    std::memcpy(scales + begin / kQuantizedBlock * sizeof(float), &scale, sizeof(float));
  }
}

void add_quantized(const std::byte* payload, float* gradient, std::size_t count) {
  const auto* values = reinterpret_cast<const std::int8_t*>(payload);
  const std::byte* scales = payload + count;
  for (std::size_t begin = 0; begin < count; begin += kQuantizedBlock) {
    float scale = 0;
    std::memcpy(&scale, scales + begin / kQuantizedBlock * sizeof(float), sizeof(float));
    const std::size_t end = std::min(count, begin + kQuantizedBlock);
    for (std::size_t i = begin; i < end; ++i) gradient[i] += static_cast<float>(values[i]) * scale;
  }
}

void keep_largest(const float* gradient, float* error, std::byte* payload, std::size_t count,
                  std::size_t kept) {
  add(error, gradient, count);
  std::vector<std::int32_t> order(count);
  for (std::size_t i = 0; i < count; ++i) order[i] = static_cast<std::int32_t>(i);
  const auto larger = [error](std::int32_t a, std::int32_t b) {
    const float x = std::abs(error[a]);
    const float y = std::abs(error[b]);
    return x != y ? x > y : a < b;
  };
  const auto middle = order.begin() + static_cast<std::ptrdiff_t>(kept);
  if (kept < count) std::nth_element(order.begin(), middle, order.end(), larger);
  std::sort(order.begin(), middle);  // by place, so that memory is walked through in order
  for (std::size_t i = 0; i < kept; ++i) {
    SparseEntry entry{order[i], error[order[i]]};
    std::memcpy(payload + i * sizeof(entry), &entry, sizeof(entry));
    error[order[i]] = 0;
  }
}

void add_largest(const std::byte* payload, float* gradient, std::size_t kept) {
  for (std::size_t i = 0; i < kept; ++i) {
    SparseEntry entry;
    std::memcpy(&entry, payload + i * sizeof(entry), sizeof(entry));
    gradient[entry.index] += entry.value;
  }
}

}  // namespace orrery::exec::cpu
