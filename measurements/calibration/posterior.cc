#include "measurements/calibration/posterior.h"

#include <Eigen/Dense>

namespace orrery::measurements {
namespace {

constexpr int kWeightRounds = 5;  // of weights
// As how many rows the variances that are thought of before count.
constexpr double kScaleRows = 4;
// An effect whose variance falls by less has nothing said of it.
constexpr double kSaid = 0.02;

void keep_unsaid(const std::vector<Effect>& effects, Posterior* posterior) {
  const std::size_t n = effects.size();
  posterior->said.assign(n, true);
  for (std::size_t e = 0; e < n; ++e) {
    const double before = effects[e].sd * effects[e].sd;
    if (posterior->covariance_of(e, e) / posterior->scale < (1 - kSaid) * before) continue;
    posterior->said[e] = false;
    posterior->mean[e] = 0;
    for (std::size_t other = 0; other < n; ++other)
      posterior->covariance[e * n + other] = posterior->covariance[other * n + e] = 0;
    posterior->covariance[e * n + e] = before;
  }
}

}  // namespace

double Posterior::mean_of(const std::vector<double>& slopes) const {
  double sum = 0;
  for (std::size_t i = 0; i < slopes.size(); ++i) sum += slopes[i] * mean[i];
  return sum;
}

double Posterior::variance_of(const std::vector<double>& slopes) const {
  double sum = 0;
  for (std::size_t i = 0; i < slopes.size(); ++i)
    for (std::size_t j = 0; j < slopes.size(); ++j) sum += slopes[i] * slopes[j] * covariance_of(i, j);
  return sum;
}

Posterior posterior_of(const std::vector<Effect>& effects, const std::vector<Seen>& rows, double freedom) {
  const auto n = static_cast<Eigen::Index>(effects.size());
  std::vector<double> weights(rows.size(), 1);
  Posterior posterior;
  posterior.mean.assign(effects.size(), 0);
  for (int round = 0; round < kWeightRounds; ++round) {
    Eigen::MatrixXd precision = Eigen::MatrixXd::Zero(n, n);
    Eigen::VectorXd right = Eigen::VectorXd::Zero(n);
    for (Eigen::Index i = 0; i < n; ++i) {
      const double sd = effects[static_cast<std::size_t>(i)].sd;
      precision(i, i) = 1 / (sd * sd);
    }
    for (std::size_t k = 0; k < rows.size(); ++k) {
      const Eigen::Map<const Eigen::VectorXd> slopes(rows[k].slopes.data(), n);
      const double w = rows[k].weight * weights[k] / (rows[k].sd * rows[k].sd);
      precision += w * slopes * slopes.transpose();
      right += w * rows[k].y * slopes;
    }
    const Eigen::LLT<Eigen::MatrixXd> factor(precision);
    const Eigen::VectorXd mean = factor.solve(right);
    std::copy(mean.begin(), mean.end(), posterior.mean.begin());
    // y^T K^-1 y of the rows' covariance K: how far they are from what was thought, in its own variances.
    double surprise = 0, count = 0;
    for (Eigen::Index i = 0; i < n; ++i) {
      const double z = mean[i] / effects[static_cast<std::size_t>(i)].sd;
      surprise += z * z;
    }
    for (std::size_t k = 0; k < rows.size(); ++k) {
      const double z = (rows[k].y - posterior.mean_of(rows[k].slopes)) / rows[k].sd;
      surprise += weights[k] * (rows[k].weight * z * z + rows[k].within / (rows[k].sd * rows[k].sd));
      count += rows[k].weight;
      weights[k] = (freedom + 1) / (freedom + z * z);
    }
    posterior.scale = (kScaleRows + surprise) / (kScaleRows + count);
    const Eigen::MatrixXd covariance = factor.solve(Eigen::MatrixXd::Identity(n, n)) * posterior.scale;
    posterior.covariance.assign(covariance.data(), covariance.data() + covariance.size());
  }
  keep_unsaid(effects, &posterior);
  return posterior;
}

}  // namespace orrery::measurements
