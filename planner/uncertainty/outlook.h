// Where a plan's step may come to lie: the closed form's answer to each factor, combined over draws that all
// plans share.
//
// A plan's step is looked at one standard deviation up and down each factor (of factors that were measured
// together, each independent direction of them: Spread::directions; 2 kFactors closed forms, a few
// tenths of a millisecond each for the first plan of a job, microseconds for the next); the logarithm of its
// time is then a parabola along each factor, and 256 draws (a Latin hypercube of normals, seeded) of all
// factors together cost a few multiplications each. What this leaves out, interactions of factors, is within
// the percent that tests/planner/uncertainty/outlook_test.cc measures against 256 whole closed forms.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "planner/closed_form/estimator.h"
#include "planner/uncertainty/spread.h"

namespace orrery::planner {

struct Range {
  double low = 0, high = 0;
};
constexpr double kCovered = 0.9;  // of what happens lies within a Range
constexpr int kDraws = 256;

// The logarithm of a step's time, by factor (by direction): at z standard deviations slope z + bend z^2.
struct Response {
  double estimate_s = 0;
  std::array<double, kFactors> slope{}, bend{};
  std::optional<double> own;  // in place of Spread::own: plans alike were measured
};

// What no mechanism explains of a plan's step: one standard deviation of its logarithm.
inline double own_of(const Response& response, const Spread& spread) {
  return response.own.value_or(spread.own);
}

class Outlook {
 public:
  explicit Outlook(std::shared_ptr<const Job> job);
  Outlook(const Outlook&) = delete;

  const Spread& spread() const { return spread_; }
  // The choices must have passed check_plan.
  Response response(const Choices& choices);

 private:
  struct Sides {
    std::unique_ptr<Estimator> up, down;
  };
  void narrow(const Choices& choices, Response* response) const;

  std::shared_ptr<const Job> job_;
  Spread spread_;
  PlansAlike alike_;
  Estimator nominal_;
  std::array<Sides, kFactors> worlds_;  // empty where a factor is certain
};

// Draw `index` of dimension `dimension`: a standard normal. Any dimension's kDraws draws are one of each of
// as many equally likely slices.
double draw(int dimension, int index);

// By draw, the factor on the step's time beside the estimate: of the mechanisms alone, which plans of one job
// share, or (`all`) with what is the site's, the model's and the row's own.
std::vector<double> drawn_factors(const Response& response, const Spread& spread, bool all = true);

// Where kCovered of the values lie, as many below as above. At least 20 of them.
Range range_of(std::vector<double> values);

// Of kCovered, as factors on the nominal step and on the nominal memory.
Range step_range(const Response& response, const Spread& spread);
Range memory_range(const Spread& spread);
// The probability that a plan whose fullest device is predicted `total` bytes fits into `capacity`, and the
// share of the capacity that may be predicted to be full where that shall have a probability.
double fit_probability(double total, double capacity, const Spread& spread);
double fillable_share(double probability, const Spread& spread);
// Share of the variance of the logarithm that each factor has; what is left is the site's and the row's.
std::array<double, kFactors> shares_of_variance(const Response& response, const Spread& spread);

}  // namespace orrery::planner
