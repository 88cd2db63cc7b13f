#include "exec/state/quantised.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"

namespace orrery::exec {
namespace {

// Quantiles of a normal distribution, scaled to [-1, 1], with an exact zero.
constexpr std::array<float, 16> kNormalFloat = {
    -1.0F,       -0.69619280F, -0.52507305F, -0.39491749F, -0.28444138F, -0.18477343F, -0.09105004F, 0.0F,
    0.07958030F, 0.16093020F,  0.24611230F,  0.33791524F,  0.44070983F,  0.56261700F,  0.72295684F,  1.0F};
constexpr float kMostByte = 127;

std::uint8_t nearest_level(float value) {
  const auto above = std::lower_bound(kNormalFloat.begin(), kNormalFloat.end(), value);
  if (above == kNormalFloat.begin()) return 0;
  if (above == kNormalFloat.end()) return kNormalFloat.size() - 1;
  const auto index = static_cast<std::uint8_t>(above - kNormalFloat.begin());
  return value - *(above - 1) < *above - value ? index - 1 : index;
}

float largest(std::span<const float> values) {
  float most = 0;
  for (const float value : values) most = std::max(most, std::abs(value));
  return most;
}

std::int8_t byte_of(float value, float magnitude) {
  if (magnitude <= 0) return 0;
  return static_cast<std::int8_t>(std::lround(std::clamp(value / magnitude, -1.0F, 1.0F) * kMostByte));
}

float value_of(std::int8_t byte, float magnitude) {
  return static_cast<float>(byte) * (magnitude / kMostByte);
}

void quantise_rows(std::span<const float> values, Quantised* result) {
  result->codes.resize(values.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    result->codes[i] = static_cast<std::uint8_t>(byte_of(values[i], result->scales[i / result->row]));
}

// The blocks' magnitudes in 8 bits, and what these then say.
void nest_scales(Quantised* result) {
  std::vector<float>& blocks = result->scales;
  double sum = 0;
  for (const float magnitude : blocks) sum += static_cast<double>(magnitude);
  result->mean = static_cast<float>(sum / static_cast<double>(std::max<std::size_t>(1, blocks.size())));
  for (float& magnitude : blocks) magnitude -= result->mean;
  std::vector<float> groups;
  for (std::size_t begin = 0; begin < blocks.size(); begin += kQuantisedGroup) {
    const std::span group(blocks.data() + begin, std::min(kQuantisedGroup, blocks.size() - begin));
    groups.push_back(largest(group));
    for (const float magnitude : group) result->nested.push_back(byte_of(magnitude, groups.back()));
  }
  blocks = std::move(groups);
}

float block_scale(const Quantised& quantised, std::size_t block) {
  if (quantised.type == BaseType::nf4) return quantised.scales[block];
  return quantised.mean + value_of(quantised.nested[block], quantised.scales[block / kQuantisedGroup]);
}

void quantise_blocks(std::span<const float> values, Quantised* result) {
  result->codes.assign((values.size() + 1) / 2, 0);
  for (std::size_t begin = 0; begin < values.size(); begin += kQuantisedBlock)
    result->scales.push_back(
        largest(values.subspan(begin, std::min(kQuantisedBlock, values.size() - begin))));
  const std::vector<float> magnitudes = result->scales;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float magnitude = magnitudes[i / kQuantisedBlock];
    const std::uint8_t level = nearest_level(magnitude > 0 ? values[i] / magnitude : 0);
    result->codes[i / 2] |= i % 2 == 0 ? static_cast<std::uint8_t>(level << 4U) : level;
  }
  if (result->type == BaseType::nf4_dq) nest_scales(result);
}

}  // namespace

std::size_t Quantised::bytes() const {
  return codes.size() + scales.size() * sizeof(float) + nested.size() + sizeof(mean);
}

std::vector<float> row_magnitudes(std::span<const float> values, std::size_t row) {
  std::vector<float> magnitudes;
  for (std::size_t begin = 0; begin < values.size(); begin += row)
    magnitudes.push_back(largest(values.subspan(begin, row)));
  return magnitudes;
}

Quantised quantise(BaseType type, std::span<const float> values, std::size_t row,
                   std::span<const float> magnitudes) {
  ORRERY_CHECK(row > 0 && values.size() % row == 0, "a matrix without whole rows");
  Quantised result;
  result.type = type;
  result.elements = values.size();
  result.row = row;
  if (type == BaseType::int8) {
    result.scales.assign(magnitudes.begin(), magnitudes.end());
    if (magnitudes.empty()) result.scales = row_magnitudes(values, row);
    quantise_rows(values, &result);
  } else {
    quantise_blocks(values, &result);
  }
  return result;
}

void dequantise(const Quantised& quantised, float* into) {
  if (quantised.type == BaseType::int8) {
    for (std::size_t i = 0; i < quantised.elements; ++i)
      into[i] = value_of(static_cast<std::int8_t>(quantised.codes[i]), quantised.scales[i / quantised.row]);
    return;
  }
  for (std::size_t begin = 0; begin < quantised.elements; begin += kQuantisedBlock) {
    const float scale = block_scale(quantised, begin / kQuantisedBlock);
    const std::size_t end = std::min(begin + kQuantisedBlock, quantised.elements);
    for (std::size_t i = begin; i < end; ++i) {
      const std::uint8_t pair = quantised.codes[i / 2];
      into[i] = kNormalFloat[i % 2 == 0 ? pair >> 4U : pair & 15U] * scale;
    }
  }
}

}  // namespace orrery::exec
