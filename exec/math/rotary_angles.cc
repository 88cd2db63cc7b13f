#include "exec/math/rotary_angles.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace orrery::exec {
namespace {

constexpr double kTurn = 2 * 3.14159265358979323846;

// Llama 3.1: waves longer than what the model was first trained on are stretched, those much shorter are not.
double llama3_frequency(const RotaryScaling& scaling, double frequency) {
  const double wave = kTurn / frequency, positions = scaling.original_positions;
  if (wave < positions / scaling.high_frequency) return frequency;
  if (wave > positions / scaling.low_frequency) return frequency / scaling.factor;
  const double smooth =
      (positions / wave - scaling.low_frequency) / (scaling.high_frequency - scaling.low_frequency);
  return (1 - smooth) * frequency / scaling.factor + smooth * frequency;
}

// The pair that turns so often within the original positions.
double pair_turning(double turns, const RotaryScaling& scaling, int dim, double theta) {
  return dim * std::log(scaling.original_positions / (turns * kTurn)) / (2 * std::log(theta));
}

double yarn_frequency(const RotaryScaling& scaling, double frequency, int pair, int dim, double theta) {
  const double low = std::max(std::floor(pair_turning(scaling.beta_fast, scaling, dim, theta)), 0.0);
  double high = std::min(std::ceil(pair_turning(scaling.beta_slow, scaling, dim, theta)), dim - 1.0);
  if (low == high) high += 0.001;
  const double stretched = std::clamp((pair - low) / (high - low), 0.0, 1.0);
  return frequency / scaling.factor * stretched + frequency * (1 - stretched);
}

}  // namespace

RotaryAngles rotary_angles(const Transformer& model, int seq_len) {
  const RotaryScaling& scaling = model.rotary_scaling;
  const int dim = model.rotary_fraction > 0 ? static_cast<int>(model.head_dim * model.rotary_fraction) / 2 * 2
                                            : model.head_dim;
  RotaryAngles angles;
  angles.pairs = dim / 2;
  ORRERY_CHECK(angles.pairs <= kMostRotaryPairs, "heads wider than why_not_executable lets through");
  if (scaling.kind == RopeScaling::yarn) angles.amplitude = scaling.attention_factor;
  double theta = model.rope_theta;
  if (scaling.kind == RopeScaling::dynamic && seq_len > model.max_positions && dim > 2)
    theta *=
        std::pow(scaling.factor * seq_len / model.max_positions - (scaling.factor - 1), dim / (dim - 2.0));
  for (int pair = 0; pair < angles.pairs; ++pair) {
    double& frequency = angles.frequency[static_cast<std::size_t>(pair)];
    frequency = std::pow(theta, -2.0 * pair / dim);
    if (scaling.kind == RopeScaling::linear) frequency /= scaling.factor;
    if (scaling.kind == RopeScaling::llama3) frequency = llama3_frequency(scaling, frequency);
    if (scaling.kind == RopeScaling::yarn) frequency = yarn_frequency(scaling, frequency, pair, dim, theta);
  }
  return angles;
}

}  // namespace orrery::exec
