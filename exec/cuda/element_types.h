// The types that kernels are made for: float, and these two of two bytes (exec/cuda/two_bytes.h reads and
// writes them).
#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace orrery::exec::kernels {

struct Bf16 {
  std::uint16_t bits;
};
struct Fp16 {
  std::uint16_t bits;
};

template <class T>
constexpr DType kTypeOf = DType::fp32;
template <>
inline constexpr DType kTypeOf<Bf16> = DType::bf16;
template <>
inline constexpr DType kTypeOf<Fp16> = DType::fp16;

}  // namespace orrery::exec::kernels
