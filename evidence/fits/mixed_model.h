// A linear model with random effects: y = sum of (coefficient x effect) + noise, in which effects of one
// group are draws from a normal distribution around zero. Posterior of the effects and the groups' standard
// deviations by expectation-maximisation; noise has Student's t with four degrees of freedom, by weights.
#pragma once

#include <Eigen/Dense>
#include <string>
#include <vector>

namespace orrery::evidence {

struct Term {
  int effect = 0;
  double coefficient = 0;
};

struct Observation {
  std::vector<Term> terms;
  double y = 0;
  double weight = 1;
  int noise = 0;  // whose noise it has
};

struct Effects {
  std::vector<int> group;  // of each effect
  std::vector<double> sd;  // of each group
  // What is thought of each group's sd before anything is seen, and how many effects that is worth.
  std::vector<double> prior_sd, prior_count;
  std::vector<double> noise_sd;  // of each kind of noise
  double prior_noise_sd = 0.08, prior_noise_count = 10;
};

struct Posterior {
  Eigen::VectorXd mean;
  Eigen::MatrixXd covariance;
};

// `offset`: prior means (0 where empty). Observations whose `used` is false are left out.
Posterior solve(const std::vector<Observation>& observations, const std::vector<bool>& used,
                const Effects& effects, int robust_rounds = 4);
// One round of EM: updates sd and noise_sd from a posterior.
void update_deviations(const std::vector<Observation>& observations, const std::vector<bool>& used,
                       const Posterior& posterior, Effects* effects);

}  // namespace orrery::evidence
