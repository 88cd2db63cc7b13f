#include "base/random.h"

#include <cmath>
#include <numbers>

namespace orrery {

double CounterRandom::normal(std::uint64_t index) const {
  const double u = 1.0 - uniform(2 * index);  // in (0, 1]: the logarithm is finite
  const double v = uniform(2 * index + 1);
  return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v);
}

}  // namespace orrery
