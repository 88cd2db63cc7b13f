// FNV-1a (Fowler, Noll, Vo), 64 bits: the same on every machine and in every release, so files may keep it.
// It finds damage, not forgery.
#pragma once

#include <cstdint>
#include <string_view>

namespace orrery {

constexpr std::uint64_t kFnvBasis = 0xCBF29CE484222325ULL;
constexpr std::uint64_t kFnvPrime = 0x100000001B3ULL;

// One step of it: a byte of what is hashed, or a wider word.
constexpr std::uint64_t fnv_step(std::uint64_t hash, std::uint64_t word) {
  return (hash ^ word) * kFnvPrime;
}

// Of all bytes, from `hash` on.
constexpr std::uint64_t fnv_of(std::string_view bytes, std::uint64_t hash = kFnvBasis) {
  for (const char c : bytes) hash = fnv_step(hash, static_cast<unsigned char>(c));
  return hash;
}

}  // namespace orrery
