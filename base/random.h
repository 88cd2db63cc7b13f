// Seeded randomness that is the same on every machine, standard library and plan.
#pragma once

#include <cstdint>

namespace orrery {

// SplitMix64's finaliser (Steele, Lea, Flood 2014): a bijection of 64 bits in which every bit of `z` moves
// half of the result's. Also what hashes are made of.
constexpr std::uint64_t splitmix64(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}
// Its step between draws: 2^64 divided by the golden ratio.
constexpr std::uint64_t kSplitmix64Step = 0x9E3779B97F4A7C15ULL;

// A counter-based generator: value(i) depends on (seed, stream, i) alone, so that a rank can draw just the
// slice of a tensor that it owns and get what a rank owning the whole would have drawn.
class CounterRandom {
 public:
  CounterRandom(std::uint64_t seed, std::uint64_t stream)
      : key_(splitmix64(seed ^ splitmix64(stream + kSplitmix64Step))) {}
  std::uint64_t bits(std::uint64_t index) const { return splitmix64(key_ + kSplitmix64Step * (index + 1)); }
  // Uniform in [0, 1).
  double uniform(std::uint64_t index) const { return static_cast<double>(bits(index) >> 11) * 0x1.0p-53; }
  // Standard normal, by Box-Muller over two independent draws of the same index.
  double normal(std::uint64_t index) const;

 private:
  std::uint64_t key_;
};

}  // namespace orrery
