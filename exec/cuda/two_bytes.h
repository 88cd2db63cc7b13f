// fp32 and two-byte types: rounded to nearest even, as exec/cpu/narrow.cc does. By one instruction on a GPU;
// by their bits where kernels run on a processor.
#pragma once

#include <cuda_runtime.h>
#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

#include <cstdint>

#include "base/dtype.h"
#include "exec/cuda/element_types.h"

namespace orrery::exec::kernels {

#ifdef __CUDACC__
__device__ inline std::uint16_t to_bf16(float x) {
  return __bfloat16_as_ushort(__float2bfloat16_rn(x));
}
__device__ inline std::uint16_t to_fp16(float x) {
  return __half_as_ushort(__float2half_rn(x));
}
__device__ inline float from_fp16(std::uint16_t x) {
  return __half2float(__ushort_as_half(x));
}
#else
constexpr unsigned kInfinity = 0x7f800000U;          // of fp32, without the sign
constexpr unsigned kRoundsToInfinity = 0x477ff000U;  // 65520: halfway between the largest half and the next
constexpr unsigned kLeastNormalHalf = 0x38800000U;   // 2^-14
constexpr float kSubnormalsPerOne = 16777216;        // 2^24

inline std::uint16_t to_bf16(float x) {
  const unsigned bits = __float_as_uint(x);
  if ((bits & 0x7fffffffU) > kInfinity) return static_cast<std::uint16_t>(bits >> 16 | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7fffU + (bits >> 16 & 1U)) >> 16);
}

inline std::uint16_t to_fp16(float x) {
  const unsigned bits = __float_as_uint(x);
  const unsigned sign = bits >> 16 & 0x8000U;
  const unsigned size = bits & 0x7fffffffU;
  unsigned half = 0;
  if (size > kInfinity)
    half = 0x7e00U;
  else if (size >= kRoundsToInfinity)
    half = 0x7c00U;
  else if (size < kLeastNormalHalf)
    half = static_cast<unsigned>(rintf(__uint_as_float(size) * kSubnormalsPerOne));
  else
    half = (size + 0xfffU + (size >> 13 & 1U) - 0x38000000U) >> 13;
  return static_cast<std::uint16_t>(sign | half);
}

inline float from_fp16(std::uint16_t x) {
  const unsigned sign = static_cast<unsigned>(x & 0x8000U) << 16;
  const unsigned exponent = x >> 10 & 0x1fU;
  const unsigned mantissa = x & 0x3ffU;
  if (exponent == 0) {
    const float size = static_cast<float>(mantissa) / kSubnormalsPerOne;
    return sign ? -size : size;
  }
  const unsigned scaled = exponent == 0x1fU ? 0xffU : exponent + 112;
  return __uint_as_float(sign | scaled << 23 | mantissa << 13);
}
#endif

__device__ inline float from_bf16(std::uint16_t x) {
  return __uint_as_float(static_cast<unsigned>(x) << 16);
}

// Elements of any of the three types in and out.
__device__ inline float wide(float x) {
  return x;
}
__device__ inline float wide(Bf16 x) {
  return from_bf16(x.bits);
}
__device__ inline float wide(Fp16 x) {
  return from_fp16(x.bits);
}
__device__ inline void put(float& to, float x) {
  to = x;
}
__device__ inline void put(Bf16& to, float x) {
  to.bits = to_bf16(x);
}
__device__ inline void put(Fp16& to, float x) {
  to.bits = to_fp16(x);
}

// Element i of a product's factor (exec/cuda/products.h): fp32 words unless the type has two bytes.
__device__ inline void put_factor(DType type, void* to, std::int64_t i, float x) {
  if (type == DType::bf16)
    static_cast<std::uint16_t*>(to)[i] = to_bf16(x);
  else if (type == DType::fp16)
    static_cast<std::uint16_t*>(to)[i] = to_fp16(x);
  else
    static_cast<float*>(to)[i] = x;
}

}  // namespace orrery::exec::kernels
