// Seeded randomness that is the same on every machine, standard library and plan.
#pragma once

#include <cstdint>

namespace orrery {

// A counter-based generator: value(i) depends on (seed, stream, i) alone, so that a rank can draw just the
// slice of a tensor that it owns and get what a rank owning the whole would have drawn. SplitMix64's
// finaliser (Steele, Lea, Flood 2014) over a mixed key.
class CounterRandom {
 public:
  CounterRandom(std::uint64_t seed, std::uint64_t stream)
      : key_(mix(seed ^ mix(stream + 0x9E3779B97F4A7C15ULL))) {}
  std::uint64_t bits(std::uint64_t index) const { return mix(key_ + 0x9E3779B97F4A7C15ULL * (index + 1)); }
  // Uniform in [0, 1).
  double uniform(std::uint64_t index) const { return static_cast<double>(bits(index) >> 11) * 0x1.0p-53; }
  // Standard normal, by Box-Muller over two independent draws of the same index.
  double normal(std::uint64_t index) const;

 private:
  static constexpr std::uint64_t mix(std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
  }
  std::uint64_t key_;
};

}  // namespace orrery
