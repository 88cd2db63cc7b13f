#include "measurements/calibration/learned.h"

#include <algorithm>
#include <utility>

#include "base/format.h"
#include "base/random.h"
#include "base/statistics.h"

namespace orrery::measurements {
namespace {

constexpr std::size_t kFolds = 5;

}  // namespace

void Errors::add(double before_s, double after_s, double sd, double measured_s) {
  before_.push_back(std::abs(before_s / measured_s - 1));
  after_.push_back(std::abs(after_s / measured_s - 1));
  covered_ += covers(after_s, sd, measured_s) ? 1 : 0;
}

HeldOut Errors::sum() const {
  HeldOut found;
  found.rows = static_cast<int>(after_.size());
  found.mape_before = mean(before_);
  found.mape_after = mean(after_);
  found.coverage = after_.empty() ? 0 : covered_ / static_cast<double>(after_.size());
  return found;
}

std::string counted_together(int steps, int collectives, int products) {
  std::vector<std::string> parts;
  for (const auto& [count, what] :
       {std::pair(steps, "step"), {collectives, "collective"}, {products, "product"}})
    if (count > 0) parts.push_back(counted(count, what));
  std::string said = parts.empty() ? "nothing" : parts.front();
  for (std::size_t i = 1; i < parts.size(); ++i) said += (i + 1 == parts.size() ? " and " : ", ") + parts[i];
  return said;
}

int number_of_folds(std::size_t rows) {
  return static_cast<int>(rows < 2 ? 0 : std::min(rows, kFolds));
}

std::vector<int> folds_of(std::size_t rows) {
  std::vector<int> folds(rows);
  for (std::size_t i = 0; i < rows; ++i) folds[i] = static_cast<int>(i % kFolds);
  const CounterRandom random(3, rows);
  for (std::size_t i = rows; i-- > 1;) std::swap(folds[i], folds[random.bits(i) % (i + 1)]);
  return folds;
}

}  // namespace orrery::measurements
