// Sums over a tensor with random signs, and of its squares.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "base/random.h"

namespace orrery::exec {

constexpr int kProjections = 8;

// In this many lanes, added up at the end: the same ones whatever the instruction set.
class Projections {
 public:
  static constexpr int kLanes = 8;

  // `first`: of the value's place in its tensor, by which its signs are drawn.
  void add(const CounterRandom& random, std::uint64_t first, std::span<const float> values);
  void add(const Projections& other);
  // Of squares, then of each projection.
  std::array<double, 1 + kProjections> sums() const;

 private:
  std::array<double, (1 + kProjections) * kLanes> lanes_{};  // of squares, then of each projection
};

}  // namespace orrery::exec
