// Element types and the precision a training run computes in.
#pragma once

#include <cstdint>
#include <string_view>

namespace orrery {

enum class DType : std::uint8_t { fp32, tf32, fp16, bf16, fp8, int8, int32, int64 };
constexpr int kDTypeCount = 8;

// Bytes that one element occupies in memory (tf32 is stored as fp32).
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
      return 1;
    case DType::int64:
      return 8;
  }
  return 4;
}

std::string_view name_of(DType type);
// Throws UserError on an unknown name.
DType dtype_from_name(std::string_view name);

}  // namespace orrery
