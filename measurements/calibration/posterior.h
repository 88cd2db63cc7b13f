// What effects are thought to be once rows have been seen: y = sum of slope x effect + noise, with effects
// that are normal around zero before.
#pragma once

#include <string>
#include <vector>

namespace orrery::measurements {

struct Effect {
  std::string name;
  double sd = 0;  // before anything is seen
};

struct Seen {
  std::vector<double> slopes;  // one for each effect
  double y = 0;
  double sd = 0;      // of its noise
  double weight = 1;  // of rows that say the same thing again
  double within = 0;  // of so many rows with the mean y, the sum of the squares that they lie from it
};

struct Posterior {
  std::vector<double> mean;
  std::vector<double> covariance;  // square, row by row
  // How much larger than thought the rows show all variances to be, effects' and noise's alike.
  double scale = 1;
  std::vector<bool> said;  // whether the rows say anything of an effect; what they do not stays as it was

  double covariance_of(std::size_t a, std::size_t b) const { return covariance[a * mean.size() + b]; }
  double mean_of(const std::vector<double>& slopes) const;
  double variance_of(const std::vector<double>& slopes) const;  // without noise
};

// Of the noise of what people measure: rows that are far off pull little.
inline constexpr double kNoiseFreedom = 8;

// Noise has Student's t with `freedom` degrees of freedom, by weights. `covariance` is scaled.
Posterior posterior_of(const std::vector<Effect>& effects, const std::vector<Seen>& rows, double freedom);

}  // namespace orrery::measurements
