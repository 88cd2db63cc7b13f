// Training has come to numbers that are not finite.
#pragma once

#include <cmath>
#include <span>
#include <stdexcept>

namespace orrery::exec {

// Says the step, the rank, and the first of its tensors that is not finite. The executor ends with exit
// code 1.
class NotFinite : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// What scripts/train.sbatch looks for: training again from the same checkpoint would come to the same.
constexpr const char* kNotFinite = "not finite";

inline bool all_finite(std::span<const float> values) {
  for (const float value : values)
    if (!std::isfinite(value)) return false;
  return true;
}

}  // namespace orrery::exec
