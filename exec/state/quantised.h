// Frozen matrices in 8 or 4 bits: how weights are stored, and what they say when they are turned back. Each
// rank quantises its own part, in the order in which it is stored, as it would hold it on a device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "workloads/fine_tuning.h"

namespace orrery::exec {

constexpr std::size_t kQuantisedBlock = 64;   // elements that share a scale (nf4)
constexpr std::size_t kQuantisedGroup = 256;  // blocks whose scales share one (nf4-dq)

// int8: a signed byte, in units of its row's largest magnitude / 127. nf4: the nearest of 16 levels (QLoRA,
// arXiv 2305.14314, appendix E) times its block's largest magnitude; two elements a byte, the first in the
// upper half. nf4-dq: the blocks' magnitudes, less their mean, in units of their group's largest / 127
// (section 3, double quantisation; bitsandbytes spaces these 8 bits otherwise).
struct Quantised {
  BaseType type = BaseType::none;
  std::size_t elements = 0;
  std::size_t row = 0;  // elements of one (int8)
  std::vector<std::uint8_t> codes;
  std::vector<float> scales;        // of rows (int8), blocks (nf4), groups (nf4-dq)
  std::vector<std::int8_t> nested;  // nf4-dq: of blocks
  float mean = 0;                   // nf4-dq: of the blocks' magnitudes
  std::size_t bytes() const;
};

// `row_scales`: int8's, a row's largest magnitude each where others hold parts of the rows; empty: their own.
Quantised quantise(BaseType type, std::span<const float> values, std::size_t row,
                   std::span<const float> row_magnitudes = {});
void dequantise(const Quantised& quantised, float* into);
std::vector<float> row_magnitudes(std::span<const float> values, std::size_t row);

}  // namespace orrery::exec
