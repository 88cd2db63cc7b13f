// Which elements a dropout leaves out (Srivastava et al., JMLR 15, 2014). An element's fate is a function of
// the seed, the step, the sample, the position, the operator and the column alone: no plan, recomputation or
// restart changes it, every device says the same, and no mask is kept.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/random.h"

#ifdef __CUDACC__
#define ORRERY_ON_BOTH __host__ __device__
#else
#define ORRERY_ON_BOTH
#endif

namespace orrery::exec {

// The key of a row of which all is kept (evaluation).
constexpr std::uint64_t kKeepsAll = 0;

// One dropout of a matrix. `rows`: the keys of its rows, in the device's memory.
struct Dropout {
  const std::uint64_t* rows = nullptr;
  std::uint64_t place = 0;         // dropout_place
  double rate = 0;                 // share of the elements that is left out; 0: nothing is done
  std::uint32_t first_column = 0;  // of the model's: which the first column here is
};

// Of an attention's probabilities. `all.rows`: of the queries. Local head h is number first_head + h of the
// model; local key j is at position first[0] + j, from `run` on at first[1] + j - run.
struct AttentionDropout {
  Dropout all;
  int first_head = 0;
  int run = 0;
  int first[2] = {0, 0};
};

inline std::uint64_t dropout_row_key(std::uint64_t seed, std::int64_t step, std::int64_t sample,
                                     std::int64_t position) {
  constexpr std::uint64_t kStream = 0x64726F706F757473ULL;  // "dropouts"
  std::uint64_t key = splitmix64(seed ^ kStream);
  for (const std::int64_t part : {step, sample, position})
    key = splitmix64(key + kSplitmix64Step * (static_cast<std::uint64_t>(part) + 1));
  return key == kKeepsAll ? 1 : key;
}

// `branch`: of an operator with several.
inline std::uint64_t dropout_place(int op, int branch) {
  return splitmix64(kSplitmix64Step *
                    ((static_cast<std::uint64_t>(op) << 16) + static_cast<std::uint64_t>(branch) + 1));
}

// The same of one head of an attention.
ORRERY_ON_BOTH inline std::uint64_t dropout_place_of_head(std::uint64_t place, int head) {
  return place + 0x9E3779B97F4A7C15ULL * static_cast<std::uint64_t>(head + 1);
}

// An element is left out where its bits are below this.
inline std::uint32_t dropout_threshold(double rate) {
  const double scaled = std::floor(rate * 0x1.0p32);
  return scaled >= 0x1.0p32 ? UINT32_MAX : static_cast<std::uint32_t>(scaled);
}
// What is kept is multiplied by this, so that the expectation stays.
inline float dropout_scale(double rate) {
  return static_cast<float>(1 / (1 - rate));
}

// Uniform bits of an element; `state`: the row's key ^ the place. A finaliser of 32 bits (C. Wellons,
// "Prospecting for hash functions"), with the state's halves let in before and between.
ORRERY_ON_BOTH inline std::uint32_t dropout_bits(std::uint64_t state, std::uint32_t column) {
  std::uint32_t x = column * 0x9E3779B9U + static_cast<std::uint32_t>(state);
  x ^= x >> 16;
  x *= 0x7FEB352DU;
  x += static_cast<std::uint32_t>(state >> 32);
  x ^= x >> 15;
  x *= 0x846CA68BU;
  x ^= x >> 16;
  return x;
}

}  // namespace orrery::exec
