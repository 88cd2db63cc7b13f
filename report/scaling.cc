#include "report/scaling.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <set>

namespace orrery {
namespace {

using Vector = std::array<double, 3>;

// Least squares of y by columns of x, of those columns that `used` names; the others' coefficients are 0.
std::optional<Vector> least_squares(const std::vector<Vector>& x, const std::vector<double>& y,
                                    const std::vector<std::size_t>& used) {
  const std::size_t n = used.size();
  std::array<std::array<double, 4>, 3> m{};
  for (std::size_t row = 0; row < x.size(); ++row)
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; ++j) m[i][j] += x[row][used[i]] * x[row][used[j]];
      m[i][3] += x[row][used[i]] * y[row];
    }
  for (std::size_t i = 0; i < n; ++i) {
    std::size_t pivot = i;
    for (std::size_t k = i + 1; k < n; ++k)
      if (std::abs(m[k][i]) > std::abs(m[pivot][i])) pivot = k;
    if (std::abs(m[pivot][i]) < 1e-300) return std::nullopt;
    std::swap(m[i], m[pivot]);
    for (std::size_t k = 0; k < n; ++k) {
      if (k == i) continue;
      const double factor = m[k][i] / m[i][i];
      for (std::size_t j = i; j < 4; ++j) m[k][j] -= factor * m[i][j];
    }
  }
  Vector result{};
  for (std::size_t i = 0; i < n; ++i) result[used[i]] = m[i][3] / m[i][i];
  return result;
}

double error_of(const ScalingFit& fit, const std::vector<ScalingPoint>& points) {
  double squares = 0;
  for (const ScalingPoint& point : points) {
    const double off = fit.rate(point.devices) / point.rate - 1;
    squares += off * off;
  }
  return std::sqrt(squares / static_cast<double>(points.size()));
}

// n / rate = a + b (n - 1) + c n (n - 1) with a = 1 / r, b = s / r, c = k / r: linear, divided by n / rate so
// that errors are relative. Of the fits with none below 0, the best.
ScalingFit fit_denominator(const std::vector<ScalingPoint>& points, bool pairs) {
  std::vector<Vector> x;
  for (const ScalingPoint& point : points) {
    const double n = point.devices, weight = point.rate / n;
    x.push_back({weight, (n - 1) * weight, n * (n - 1) * weight});
  }
  const std::vector<double> y(points.size(), 1);
  std::vector<std::vector<std::size_t>> choices = {{0}, {0, 1}};
  if (pairs) choices.insert(choices.end(), {{0, 2}, {0, 1, 2}});
  ScalingFit best;
  best.error = 1e300;
  for (const auto& used : choices) {
    const auto found = least_squares(x, y, used);
    if (!found || (*found)[0] <= 0 || (*found)[1] < 0 || (*found)[2] < 0 || (*found)[1] > (*found)[0])
      continue;
    ScalingFit fit;
    fit.law = pairs ? "usl" : "amdahl";
    fit.rate_of_one = 1 / (*found)[0];
    fit.serial = (*found)[1] / (*found)[0];
    fit.pairs = (*found)[2] / (*found)[0];
    fit.error = error_of(fit, points);
    if (fit.error < best.error) best = fit;
  }
  if (best.pairs > 0) best.most_devices = std::sqrt((1 - best.serial) / best.pairs);
  return best;
}

// rate = a + b n with a = r s, b = r (1 - s), divided by the rate.
ScalingFit fit_gustafson(const std::vector<ScalingPoint>& points) {
  std::vector<Vector> x;
  for (const ScalingPoint& point : points) x.push_back({1 / point.rate, point.devices / point.rate, 0});
  const std::vector<double> y(points.size(), 1);
  ScalingFit best;
  best.error = 1e300;
  for (const auto& used : std::vector<std::vector<std::size_t>>{{0}, {1}, {0, 1}}) {
    const auto found = least_squares(x, y, used);
    if (!found || (*found)[0] < 0 || (*found)[1] < 0) continue;
    ScalingFit fit;
    fit.law = "gustafson";
    fit.rate_of_one = (*found)[0] + (*found)[1];
    if (fit.rate_of_one <= 0) continue;
    fit.serial = (*found)[0] / fit.rate_of_one;
    fit.error = error_of(fit, points);
    if (fit.error < best.error) best = fit;
  }
  return best;
}

Json to_json(const ScalingFit& fit) {
  Json json = {{"law", fit.law}, {"rate_of_one", fit.rate_of_one}, {"serial", fit.serial}};
  if (fit.law == "usl") json["pairs"] = fit.pairs;
  if (fit.most_devices > 0) json["most_devices"] = fit.most_devices;
  json["error"] = fit.error;
  return json;
}

}  // namespace

double ScalingFit::rate(double devices) const {
  if (law == "gustafson") return rate_of_one * (serial + (1 - serial) * devices);
  return rate_of_one * devices / (1 + serial * (devices - 1) + pairs * devices * (devices - 1));
}

std::vector<ScalingFit> fit_scaling(const std::vector<ScalingPoint>& points) {
  std::set<double> distinct;
  for (const ScalingPoint& point : points) distinct.insert(point.devices);
  if (distinct.size() < 3) return {};
  std::vector<ScalingFit> fits = {fit_denominator(points, false), fit_gustafson(points),
                                  fit_denominator(points, true)};
  std::erase_if(fits, [](const ScalingFit& fit) { return fit.law.empty(); });
  return fits;
}

Json scaling_json(const Json& whatif) {
  const Json& varied = whatif.at("varied");
  if (varied.size() != 1 || !(varied.contains("nodes") || varied.contains("gpus"))) return Json::object();
  std::vector<ScalingPoint> points;
  Json list = Json::array();
  std::set<double> batches;
  bool tokens = true;
  for (const Json& point : whatif.at("points")) {
    if (!point.contains("step_time_s")) continue;
    const double devices = point.at("devices").get<double>();
    const double per_s = point.at("tokens_per_s").get<double>();
    tokens = tokens && per_s > 0;
    batches.insert(point.at("training").at("global_batch").get<double>());
    const double rate = per_s > 0 ? per_s : point.at("samples_per_s").get<double>();
    if (devices <= 0 || rate <= 0) continue;
    points.push_back({devices, rate});
    list.push_back({{"devices", devices}, {"rate", rate}});
    const double step_s = point.at("step_time_s").get<double>();
    if (point.contains("step_time_low_s") && point.at("step_time_low_s").get<double>() > 0) {
      list.back()["rate_low"] = rate * step_s / point.at("step_time_high_s").get<double>();
      list.back()["rate_high"] = rate * step_s / point.at("step_time_low_s").get<double>();
    }
  }
  if (points.size() < 2) return Json::object();
  Json fits = Json::array();
  for (const ScalingFit& fit : fit_scaling(points)) fits.push_back(to_json(fit));
  return {{"unit", tokens ? "tokens" : "samples"},
          {"strong", batches.size() == 1},
          {"points", list},
          {"fits", fits}};
}

}  // namespace orrery
