// Many random numbers at once, several times as fast as one by one and the same bit for bit.
#pragma once

#include <cstdint>
#include <span>

#include "base/random.h"

namespace orrery {

// static_cast<float>(deviation * random.normal(first + i)) for each i.
void draw_normal(const CounterRandom& random, std::uint64_t first, double deviation, std::span<float> out);
// static_cast<float>(bound * (2 * random.uniform(first + i) - 1)) for each i.
void draw_symmetric(const CounterRandom& random, std::uint64_t first, double bound, std::span<float> out);

// One row of a plane wave with noise on it: at i
//   sin(2 pi (phase + across * i / out.size() + down)) + noise * (random.uniform(first + i) - 0.5).
struct Wave {
  double phase = 0;
  double across = 0;
  double down = 0;
  double noise = 0;
};
void draw_wave(const CounterRandom& random, std::uint64_t first, const Wave& wave, std::span<float> out);

}  // namespace orrery
