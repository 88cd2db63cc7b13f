#include "planner/uncertainty/outlook.h"

#include <algorithm>
#include <boost/math/special_functions/erf.hpp>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/random.h"
#include "planner/uncertainty/site.h"

namespace orrery::planner {
namespace {

constexpr std::uint64_t kOutlookSeed = 1;
constexpr int kSite = kFactors, kOwn = kFactors + 1, kDimensions = kFactors + 2;
// Beyond this the parabola is only an extrapolation: the factor stays where it is.
constexpr double kFarthest = 2.5;

double normal_quantile(double p) {
  return -std::sqrt(2.0) * boost::math::erfc_inv(2 * p);
}

std::array<std::array<double, kDraws>, kDimensions> latin_hypercube() {
  std::array<std::array<double, kDraws>, kDimensions> cube{};
  for (int d = 0; d < kDimensions; ++d) {
    std::array<int, kDraws> slice{};
    std::iota(slice.begin(), slice.end(), 0);
    const CounterRandom random(kOutlookSeed, static_cast<std::uint64_t>(d));
    for (int i = kDraws - 1; i > 0; --i) {
      const auto other = static_cast<int>(random.uniform(static_cast<std::uint64_t>(i)) * (i + 1));
      std::swap(slice[static_cast<std::size_t>(i)], slice[static_cast<std::size_t>(other)]);
    }
    for (int i = 0; i < kDraws; ++i)
      cube[static_cast<std::size_t>(d)][static_cast<std::size_t>(i)] =
          normal_quantile((slice[static_cast<std::size_t>(i)] + 0.5) / kDraws);
  }
  return cube;
}

}  // namespace

Outlook::Outlook(std::shared_ptr<const Job> job)
    : job_(std::move(job)), spread_(spread_of(*job_)), alike_(measured_plans(*job_)), nominal_(job_) {
  for (std::size_t k = 0; k < kFactors; ++k) {
    World world = spread_.directions[k];
    if (world == World{}) continue;
    worlds_[k].up = std::make_unique<Estimator>(job_in(world, *job_));
    for (double& log_time : world.log_time) log_time = -log_time;
    worlds_[k].down = std::make_unique<Estimator>(job_in(world, *job_));
  }
}

Response Outlook::response(const Choices& choices) {
  Response response;
  response.estimate_s = nominal_.times(choices).estimate_s;
  for (std::size_t f = 0; f < kFactors; ++f) {
    if (worlds_[f].up == nullptr || response.estimate_s <= 0) continue;
    const double up = std::log(worlds_[f].up->times(choices).estimate_s / response.estimate_s);
    const double down = std::log(worlds_[f].down->times(choices).estimate_s / response.estimate_s);
    response.slope[f] = (up - down) / 2;
    response.bend[f] = (up + down) / 2;
  }
  narrow(choices, &response);
  return response;
}

void Outlook::narrow(const Choices& choices, Response* response) const {
  const std::vector<double> parts = alike_.parts_of(as_measured(*job_, choices));
  if (parts.empty()) return;
  const FieldKnown known = known_of_field(*job_->cluster.calibration, *job_, parts, spread_.directions);
  for (std::size_t k = 0; k < kFactors; ++k) response->slope[k] += known.along[k];
  const double unlike =
      spread_.own * spread_.own - job_->cluster.calibration->alike_sd * job_->cluster.calibration->alike_sd;
  response->own = std::sqrt(std::max(0.0, unlike) + known.own_variance);
}

double draw(int dimension, int index) {
  static const auto cube = latin_hypercube();
  return cube[static_cast<std::size_t>(dimension)][static_cast<std::size_t>(index)];
}

std::vector<double> drawn_factors(const Response& response, const Spread& spread, bool all) {
  std::vector<double> factors;
  factors.reserve(kDraws);
  for (int i = 0; i < kDraws; ++i) {
    double log_time = all ? spread.site * draw(kSite, i) + own_of(response, spread) * draw(kOwn, i) : 0;
    for (int f = 0; f < kFactors; ++f) {
      const double z = std::clamp(draw(f, i), -kFarthest, kFarthest);
      const auto at = static_cast<std::size_t>(f);
      log_time += response.slope[at] * z + response.bend[at] * z * z;
    }
    factors.push_back(std::exp(log_time));
  }
  return factors;
}

Range range_of(std::vector<double> values) {
  const auto count = static_cast<double>(values.size());
  ORRERY_CHECK(count * (1 - kCovered) >= 2, "too few values for their range");
  std::sort(values.begin(), values.end());
  const auto at = [&](double share) {
    const double place = share * count - 0.5;
    const auto below = static_cast<std::size_t>(place);
    return values[below] + (place - std::floor(place)) * (values[below + 1] - values[below]);
  };
  return {at((1 - kCovered) / 2), at((1 + kCovered) / 2)};
}

Range step_range(const Response& response, const Spread& spread) {
  return range_of(drawn_factors(response, spread));
}

Range memory_range(const Spread& spread) {
  const double z = normal_quantile((1 + kCovered) / 2);
  return {std::exp(-z * spread.memory), std::exp(z * spread.memory)};
}

double fit_probability(double total, double capacity, const Spread& spread) {
  if (total <= 0) return 1;
  const double log_room = std::log(capacity / total);
  if (spread.memory <= 0) return log_room >= 0 ? 1 : 0;
  return 0.5 * std::erfc(-log_room / (spread.memory * std::sqrt(2.0)));
}

double fillable_share(double probability, const Spread& spread) {
  return std::exp(-normal_quantile(probability) * spread.memory);
}

std::array<double, kFactors> shares_of_variance(const Response& response, const Spread& spread) {
  std::array<double, kFactors> shares{};
  const double own = own_of(response, spread);
  double all = spread.site * spread.site + own * own;
  for (std::size_t f = 0; f < kFactors; ++f) all += shares[f] = response.slope[f] * response.slope[f];
  for (double& share : shares) share = all > 0 ? share / all : 0;
  return shares;
}

}  // namespace orrery::planner
