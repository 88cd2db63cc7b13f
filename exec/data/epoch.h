// The order in which an epoch visits its samples.
#pragma once

#include <cstdint>

namespace orrery::exec {

// The `sample`-th place, of `count`, that an epoch visits: a permutation of its own for each (seed, epoch),
// from these numbers alone.
std::int64_t place_in_epoch(std::uint64_t seed, std::int64_t epoch, std::int64_t sample, std::int64_t count);

}  // namespace orrery::exec
