// Compressed gradients on the CPU; formats as exec/device/compressed.h says.
#pragma once

#include <cstddef>
#include <cstdint>

namespace orrery::exec::cpu {

void quantize(const float* gradient, float* error, std::byte* payload, std::size_t count);
void add_quantized(const std::byte* payload, float* gradient, std::size_t count);
void keep_largest(const float* gradient, float* error, std::byte* payload, std::size_t count,
                  std::size_t kept);
void add_largest(const std::byte* payload, float* gradient, std::size_t kept);

}  // namespace orrery::exec::cpu
