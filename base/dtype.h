// Element types and the precision a training run computes in.
#pragma once

#include <cstdint>
#include <string_view>

namespace orrery {

enum class DType : std::uint8_t { fp32, tf32, fp16, bf16, fp8, int8, int32, int64, fp4 };
constexpr int kDTypeCount = 9;

// Whole bytes that one element occupies in memory (tf32 is stored as fp32; fp4: packed_bytes_of).
constexpr int bytes_of(DType type) {
  switch (type) {
    case DType::fp32:
    case DType::tf32:
    case DType::int32:
      return 4;
    case DType::fp16:
    case DType::bf16:
      return 2;
    case DType::fp8:
    case DType::int8:
    case DType::fp4:
      return 1;
    case DType::int64:
      return 8;
  }
  return 4;
}

// Bytes of one element among many: two of NVFP4 share a byte, and sixteen an 8-bit scale.
constexpr double packed_bytes_of(DType type) {
  return type == DType::fp4 ? 0.5 + 1.0 / 16 : bytes_of(type);
}

// 8 bits and fewer are types of matrix products' operands alone: what stands between products is bf16.
constexpr bool is_narrow(DType type) {
  return type == DType::fp8 || type == DType::fp4;
}

std::string_view name_of(DType type);
// Throws UserError on an unknown name.
DType dtype_from_name(std::string_view name);

}  // namespace orrery
