#include "exec/data/epoch.h"

#include <bit>

#include "base/random.h"

namespace orrery::exec {
namespace {

constexpr std::uint64_t kOrderStream = 0x73616D706C65;  // "sample"
constexpr int kFeistelRounds = 4;

}  // namespace

// A Feistel network over the next power of four, walked until it is back inside.
std::int64_t place_in_epoch(std::uint64_t seed, std::int64_t epoch, std::int64_t sample, std::int64_t count) {
  const int half = (std::bit_width(static_cast<std::uint64_t>(count)) + 1) / 2;
  const std::uint64_t mask = (1ULL << half) - 1;
  auto value = static_cast<std::uint64_t>(sample);
  do {
    std::uint64_t left = value >> half;
    std::uint64_t right = value & mask;
    for (int round = 0; round < kFeistelRounds; ++round) {
      const CounterRandom random(seed + static_cast<std::uint64_t>(epoch),
                                 kOrderStream + static_cast<std::uint64_t>(round));
      const std::uint64_t mixed = (left ^ random.bits(right)) & mask;
      left = right;
      right = mixed;
    }
    value = left << half | right;
  } while (value >= static_cast<std::uint64_t>(count));
  return static_cast<std::int64_t>(value);
}

}  // namespace orrery::exec
