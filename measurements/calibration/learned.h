// What is known of a factor on time before measurements and after.
#pragma once

#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

namespace orrery::measurements {

constexpr double kCoveredDeviations = 1.645;  // either way: 90%
// Whether what was measured lies in that interval about a prediction with this deviation of its logarithm.
inline bool covers(double predicted, double sd, double measured) {
  return std::abs(std::log(predicted / measured)) < kCoveredDeviations * sd;
}

// The source of a factor of which nothing was measured.
constexpr const char* kNotMeasured = "not measured";

// "1 step, 63 collectives and 2 products", of which there are some; "nothing".
std::string counted_together(int steps, int collectives, int products);

struct Learned {
  std::string name;
  double mean = 0, sd = 0;  // of its logarithm, after
  double sd_before = 0;     // around 0
  std::string source_before, source;
};

// Of rows that were predicted by a calibration to the others: mean sizes of relative errors.
struct HeldOut {
  int rows = 0;
  double mape_before = 0, mape_after = 0;
  double coverage = 0;  // share within their 90% intervals after
};

// Adds rows up to that.
class Errors {
 public:
  // `sd`: of the logarithm of what is predicted after.
  void add(double before_s, double after_s, double sd, double measured_s);
  HeldOut sum() const;

 private:
  std::vector<double> before_, after_;
  int covered_ = 0;
};

// In which part of so many a row is held back: dealt out by seed, evenly; each alone where there are few.
std::vector<int> folds_of(std::size_t rows);
int number_of_folds(std::size_t rows);

}  // namespace orrery::measurements
