#include "exec/state/projections.h"

#include <bit>
#include <numeric>

#include "base/vectors/clones.h"

namespace orrery::exec {
namespace {

constexpr std::size_t kLanes = Projections::kLanes;
constexpr std::uint64_t kSign = 1ULL << 63;

// Whole rows of lanes. The sign is as random as a branch can be: its bit is set instead.
ORRERY_CLONES void add_rows(const CounterRandom& random, std::uint64_t first, const float* values,
                            std::size_t rows, double* sums) {
  double squares[kLanes];
  double signed_sums[kProjections][kLanes];
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    squares[lane] = sums[lane];
    for (std::size_t k = 0; k < kProjections; ++k) signed_sums[k][lane] = sums[(k + 1) * kLanes + lane];
  }
  for (std::size_t row = 0; row < rows; ++row) {
#pragma omp simd
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const std::uint64_t flips = ~random.bits(first + row * kLanes + lane);
      const auto value = static_cast<double>(values[row * kLanes + lane]);
      const auto raw = std::bit_cast<std::uint64_t>(value);
      squares[lane] += value * value;
      signed_sums[0][lane] += std::bit_cast<double>(raw ^ ((flips << (63 - 0)) & kSign));
      signed_sums[1][lane] += std::bit_cast<double>(raw ^ ((flips << (63 - 1)) & kSign));
      signed_sums[2][lane] += std::bit_cast<double>(raw ^ ((flips << (63 - 2)) & kSign));
      signed_sums[3][lane] += std::bit_cast<double>(raw ^ ((flips << (63 - 3)) & kSign));
      signed_sums[4][lane] += std::bit_cast<double>(raw ^ ((flips << (63 - 4)) & kSign));
      signed_sums[5][lane] += std::bit_cast<double>(raw ^ ((flips << (63 - 5)) & kSign));
      signed_sums[6][lane] += std::bit_cast<double>(raw ^ ((flips << (63 - 6)) & kSign));
      signed_sums[7][lane] += std::bit_cast<double>(raw ^ ((flips << (63 - 7)) & kSign));
    }
  }
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    sums[lane] = squares[lane];
    for (std::size_t k = 0; k < kProjections; ++k) sums[(k + 1) * kLanes + lane] = signed_sums[k][lane];
  }
}

}  // namespace

void Projections::add(const CounterRandom& random, std::uint64_t first, std::span<const float> values) {
  static_assert(sizeof(lanes_) == (1 + kProjections) * kLanes * sizeof(double));
  const std::size_t rows = values.size() / kLanes;
  add_rows(random, first, values.data(), rows, lanes_.data());
  for (std::size_t i = rows * kLanes; i < values.size(); ++i) {
    const auto value = static_cast<double>(values[i]);
    const std::uint64_t bits = random.bits(first + i);
    const std::size_t lane = i % kLanes;
    lanes_[lane] += value * value;
    for (std::size_t k = 0; k < kProjections; ++k)
      lanes_[(k + 1) * kLanes + lane] += (bits >> k & 1) != 0 ? value : -value;
  }
}

void Projections::add(const Projections& other) {
  for (std::size_t i = 0; i < lanes_.size(); ++i) lanes_[i] += other.lanes_[i];
}

std::array<double, 1 + kProjections> Projections::sums() const {
  std::array<double, 1 + kProjections> sums{};
  for (std::size_t k = 0; k < sums.size(); ++k)
    sums[k] = std::accumulate(lanes_.begin() + static_cast<std::ptrdiff_t>(k * kLanes),
                              lanes_.begin() + static_cast<std::ptrdiff_t>((k + 1) * kLanes), 0.0);
  return sums;
}

}  // namespace orrery::exec
