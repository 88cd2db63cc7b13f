#include "evidence/fits/mixed_model.h"

#include <algorithm>
#include <cmath>

namespace orrery::evidence {
namespace {

constexpr double kFreedom = 4;  // of Student's t

double residual(const Observation& o, const Eigen::VectorXd& mean) {
  double r = o.y;
  for (const Term& t : o.terms) r -= t.coefficient * mean[t.effect];
  return r;
}

double weight(double r, double sd) {
  return (kFreedom + 1) / (kFreedom + r * r / (sd * sd));
}

}  // namespace

Posterior solve(const std::vector<Observation>& observations, const std::vector<bool>& used,
                const Effects& effects, int robust_rounds) {
  const auto n = static_cast<Eigen::Index>(effects.group.size());
  Posterior posterior;
  posterior.mean = Eigen::VectorXd::Zero(n);
  std::vector<double> weights(observations.size(), 1);
  for (int round = 0; round < robust_rounds; ++round) {
    Eigen::MatrixXd precision = Eigen::MatrixXd::Zero(n, n);
    Eigen::VectorXd right = Eigen::VectorXd::Zero(n);
    for (Eigen::Index i = 0; i < n; ++i) {
      const double sd = effects.sd[static_cast<std::size_t>(effects.group[static_cast<std::size_t>(i)])];
      precision(i, i) = 1 / (sd * sd);
    }
    for (std::size_t k = 0; k < observations.size(); ++k) {
      if (!used[k]) continue;
      const double sd = effects.noise_sd[static_cast<std::size_t>(observations[k].noise)];
      const double w = observations[k].weight * weights[k] / (sd * sd);
      for (const Term& a : observations[k].terms) {
        right[a.effect] += w * a.coefficient * observations[k].y;
        for (const Term& b : observations[k].terms)
          if (b.effect <= a.effect) precision(a.effect, b.effect) += w * a.coefficient * b.coefficient;
      }
    }
    const Eigen::LLT<Eigen::MatrixXd, Eigen::Lower> factor(precision);
    posterior.mean = factor.solve(right);
    for (std::size_t k = 0; k < observations.size(); ++k)
      if (used[k])
        weights[k] = weight(residual(observations[k], posterior.mean),
                            effects.noise_sd[static_cast<std::size_t>(observations[k].noise)]);
    if (round + 1 == robust_rounds) posterior.covariance = factor.solve(Eigen::MatrixXd::Identity(n, n));
  }
  return posterior;
}

void update_deviations(const std::vector<Observation>& observations, const std::vector<bool>& used,
                       const Posterior& posterior, Effects* effects) {
  std::vector<double> squares(effects->sd.size(), 0);
  std::vector<int> counts(effects->sd.size(), 0);
  for (std::size_t i = 0; i < effects->group.size(); ++i) {
    const auto g = static_cast<std::size_t>(effects->group[i]);
    const auto at = static_cast<Eigen::Index>(i);
    squares[g] += posterior.mean[at] * posterior.mean[at] + posterior.covariance(at, at);
    ++counts[g];
  }
  for (std::size_t g = 0; g < squares.size(); ++g)
    effects->sd[g] =
        std::sqrt((squares[g] + effects->prior_count[g] * effects->prior_sd[g] * effects->prior_sd[g]) /
                  (counts[g] + effects->prior_count[g]));
  std::vector<double> sum(effects->noise_sd.size(),
                          effects->prior_noise_count * effects->prior_noise_sd * effects->prior_noise_sd);
  std::vector<double> count(effects->noise_sd.size(), effects->prior_noise_count);
  for (std::size_t k = 0; k < observations.size(); ++k) {
    if (!used[k]) continue;
    const Observation& o = observations[k];
    const double r = residual(o, posterior.mean);
    double variance = 0;
    for (const Term& a : o.terms)
      for (const Term& b : o.terms)
        variance += a.coefficient * b.coefficient * posterior.covariance(a.effect, b.effect);
    const auto kind = static_cast<std::size_t>(o.noise);
    sum[kind] += o.weight * (weight(r, effects->noise_sd[kind]) * r * r + variance);
    count[kind] += o.weight;
  }
  for (std::size_t kind = 0; kind < sum.size(); ++kind)
    effects->noise_sd[kind] = std::sqrt(sum[kind] / count[kind]);
}

}  // namespace orrery::evidence
