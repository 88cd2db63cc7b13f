#include "exec/cpu/narrow.h"

#include <bit>

#include "base/vectors/clones.h"

namespace orrery::exec::cpu {
namespace {

constexpr float kLargestHalf = 65504;

ORRERY_INLINE std::uint16_t to_bf16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const bool nan = (bits & 0x7FFFFFFFU) > 0x7F800000U;
  const std::uint32_t rounded = (bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16;
  return static_cast<std::uint16_t>(nan ? (bits >> 16 | 0x40U) : rounded);
}

ORRERY_INLINE float from_bf16(std::uint16_t x) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(x) << 16);
}

ORRERY_INLINE std::uint16_t to_fp16(float x) {
  return std::bit_cast<std::uint16_t>(static_cast<_Float16>(x));
}

ORRERY_INLINE float from_fp16(std::uint16_t x) {
  return static_cast<float>(std::bit_cast<_Float16>(x));
}

ORRERY_INLINE float clamp(float x, float limit) {
  x = x > limit ? limit : x;
  return x < -limit ? -limit : x;
}

ORRERY_CLONES void narrow_bf16(const float* from, std::uint16_t* to, std::size_t count, float scale) {
  for (std::size_t i = 0; i < count; ++i) to[i] = to_bf16(from[i] * scale);
}

ORRERY_CLONES void narrow_fp16(const float* from, std::uint16_t* to, std::size_t count, float scale) {
  for (std::size_t i = 0; i < count; ++i) to[i] = to_fp16(from[i] * scale);
}

ORRERY_CLONES void narrow_fp16_saturated(const float* from, std::uint16_t* to, std::size_t count,
                                         float scale) {
  for (std::size_t i = 0; i < count; ++i) to[i] = to_fp16(clamp(from[i] * scale, kLargestHalf));
}

ORRERY_CLONES void widen_bf16(const std::uint16_t* from, float* to, std::size_t count, float scale) {
  for (std::size_t i = 0; i < count; ++i) to[i] = from_bf16(from[i]) * scale;
}

ORRERY_CLONES void widen_fp16(const std::uint16_t* from, float* to, std::size_t count, float scale) {
  for (std::size_t i = 0; i < count; ++i) to[i] = from_fp16(from[i]) * scale;
}

ORRERY_CLONES void round_bf16(float* data, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) data[i] = from_bf16(to_bf16(data[i]));
}

ORRERY_CLONES void round_fp16(float* data, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) data[i] = from_fp16(to_fp16(data[i]));
}

ORRERY_CLONES void add_bf16(std::uint16_t* into, const std::uint16_t* from, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) into[i] = to_bf16(from_bf16(into[i]) + from_bf16(from[i]));
}

ORRERY_CLONES void add_fp16(std::uint16_t* into, const std::uint16_t* from, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) into[i] = to_fp16(from_fp16(into[i]) + from_fp16(from[i]));
}

template <typename Widen>
void maximum(std::uint16_t* into, const std::uint16_t* from, std::size_t count, Widen widen_one) {
  for (std::size_t i = 0; i < count; ++i)
    if (widen_one(from[i]) > widen_one(into[i])) into[i] = from[i];
}

}  // namespace

void narrow(DType type, const float* from, std::uint16_t* to, std::size_t count, float scale, bool saturate) {
  if (type == DType::bf16)
    narrow_bf16(from, to, count, scale);
  else if (saturate)
    narrow_fp16_saturated(from, to, count, scale);
  else
    narrow_fp16(from, to, count, scale);
}

void widen(DType type, const std::uint16_t* from, float* to, std::size_t count, float scale) {
  if (type == DType::bf16)
    widen_bf16(from, to, count, scale);
  else
    widen_fp16(from, to, count, scale);
}

void round_to(DType type, float* data, std::size_t count) {
  if (type == DType::bf16)
    round_bf16(data, count);
  else
    round_fp16(data, count);
}

void reduce_narrow(DType type, Reduction op, std::uint16_t* into, const std::uint16_t* from,
                   std::size_t count) {
  const bool bf16 = type == DType::bf16;
  if (op == Reduction::sum)
    bf16 ? add_bf16(into, from, count) : add_fp16(into, from, count);
  else if (bf16)
    maximum(into, from, count, from_bf16);
  else
    maximum(into, from, count, from_fp16);
}

}  // namespace orrery::exec::cpu
