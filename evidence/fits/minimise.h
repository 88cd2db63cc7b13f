// The least value of a function without derivatives, for the programs that fit profiles.
#pragma once

#include <algorithm>
#include <cmath>
#include <nlopt.hpp>
#include <vector>

namespace orrery {

struct Range {
  double least = -HUGE_VAL;
  double most = HUGE_VAL;
};

struct Minimisation {
  double first_step = 0;  // along each axis, from the start
  double tolerance = 0;   // ends where the simplex's values are this near each other; 0: never
  int evaluations = 0;    // ends after so many
};

// The best point found of `f`(point) inside `ranges`, one of each coordinate: Nelder and Mead's simplex, from
// `start` (moved inside where it is not). Deterministic.
template <typename Function>
std::vector<double> minimise(Function f, std::vector<double> start, const std::vector<Range>& ranges,
                             const Minimisation& how) {
  nlopt::opt search(nlopt::LN_NELDERMEAD, static_cast<unsigned>(start.size()));
  std::vector<double> least, most;
  for (std::size_t i = 0; i < start.size(); ++i) {
    least.push_back(ranges[i].least);
    most.push_back(ranges[i].most);
    start[i] = std::clamp(start[i], ranges[i].least, ranges[i].most);
  }
  search.set_lower_bounds(least);
  search.set_upper_bounds(most);
  search.set_initial_step(how.first_step);
  search.set_ftol_abs(how.tolerance);
  search.set_maxeval(how.evaluations);
  const auto call = [](const std::vector<double>& x, std::vector<double>&, void* function) {
    return (*static_cast<Function*>(function))(x);
  };
  search.set_min_objective(+call, &f);
  double value = 0;
  search.optimize(start, value);
  return start;
}

}  // namespace orrery
