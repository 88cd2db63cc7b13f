#include "report/scaling.h"

#include <catch2/catch.hpp>
#include <cmath>

using namespace orrery;

namespace {

std::vector<ScalingPoint> points_of(const ScalingFit& law, const std::vector<double>& devices) {
  std::vector<ScalingPoint> points;
  for (const double n : devices) points.push_back({n, law.rate(n)});
  return points;
}

const ScalingFit& fit_named(const std::vector<ScalingFit>& fits, const std::string& law) {
  for (const ScalingFit& fit : fits)
    if (fit.law == law) return fit;
  FAIL("no fit of " << law);
  return fits.front();
}

}  // namespace

TEST_CASE("Amdahl's law is found in what follows it") {
  // A ninth serial: n / rate = 1 + (n - 1) / 9.
  const auto fits = fit_scaling({{1, 1}, {2, 1.8}, {4, 3}, {10, 5}});
  const ScalingFit& amdahl = fit_named(fits, "amdahl");
  CHECK(amdahl.rate_of_one == Approx(1));
  CHECK(amdahl.serial == Approx(1.0 / 9));
  CHECK(amdahl.error == Approx(0).margin(1e-12));
  CHECK(amdahl.rate(10) == Approx(5));
  // The universal law contains it: nothing of pairs.
  CHECK(fit_named(fits, "usl").pairs == Approx(0).margin(1e-12));
  // Gustafson's does not.
  CHECK(fit_named(fits, "gustafson").error > 0.05);
}

TEST_CASE("Gustafson's law is found in what follows it, whatever one device does") {
  // 7 samples a second on one device, a tenth of the parallel run serial: 7 (0.1 + 0.9 n).
  const auto fits = fit_scaling({{2, 13.3}, {4, 25.9}, {8, 51.1}});
  const ScalingFit& gustafson = fit_named(fits, "gustafson");
  CHECK(gustafson.rate_of_one == Approx(7));
  CHECK(gustafson.serial == Approx(0.1));
  CHECK(gustafson.error == Approx(0).margin(1e-12));
}

TEST_CASE("the universal law has a top, which is told") {
  ScalingFit law;
  law.law = "usl";
  law.rate_of_one = 100;
  law.serial = 0.05;
  law.pairs = 0.001;
  // 2 devices: 200 / (1 + 0.05 + 0.002); 10: 1000 / (1 + 0.45 + 0.09).
  CHECK(law.rate(2) == Approx(190.114).epsilon(1e-5));
  CHECK(law.rate(10) == Approx(649.351).epsilon(1e-5));
  const ScalingFit found = fit_named(fit_scaling(points_of(law, {1, 2, 8, 32, 64})), "usl");
  CHECK(found.serial == Approx(0.05));
  CHECK(found.pairs == Approx(0.001));
  CHECK(found.most_devices == Approx(std::sqrt(950.0)));  // sqrt((1 - s) / k)
  CHECK(found.rate(31) > found.rate(30));
  CHECK(found.rate(32) < found.rate(31));
}

TEST_CASE("what follows no law is fitted by least squares of relative errors") {
  // By hand, of (1, 1), (2, 1), (3, 2): rows (rate / n, (n - 1) rate / n) are (1, 0), (1/2, 1/2), (2/3, 4/3),
  // their normal equations 61/36 a + 41/36 b = 13/6 and 41/36 a + 73/36 b = 11/6, so a = 83/77, b = 23/77.
  const ScalingFit amdahl = fit_named(fit_scaling({{1, 1}, {2, 1}, {3, 2}}), "amdahl");
  CHECK(amdahl.rate_of_one == Approx(77.0 / 83));
  CHECK(amdahl.serial == Approx(23.0 / 83));
  // Off by -7, 45 and -10 in a hundred.
  const double off1 = 77.0 / 83 - 1, off2 = 2 * 77.0 / 106 - 1, off3 = 3 * 77.0 / 129 / 2 - 1;
  CHECK(amdahl.error == Approx(std::sqrt((off1 * off1 + off2 * off2 + off3 * off3) / 3)));
}

TEST_CASE("faster than its devices is no serial share below nothing") {
  const auto fits = fit_scaling({{1, 1}, {2, 2.2}, {4, 4.8}});
  CHECK(fit_named(fits, "amdahl").serial == 0);
  CHECK(fit_named(fits, "usl").serial == 0);
  CHECK(fit_named(fits, "gustafson").serial == 0);
}

TEST_CASE("two numbers of devices fit any law, so none is told") {
  CHECK(fit_scaling({{1, 1}, {2, 1.5}}).empty());
  CHECK(fit_scaling({{1, 1}, {2, 1.5}, {2, 1.6}}).empty());
}

TEST_CASE("scaling is told of what-ifs that vary devices alone") {
  Json whatif = {{"varied", {{"nodes", {"1", "2", "4"}}}}, {"points", Json::array()}};
  for (const double n : {1.0, 2.0, 4.0})
    whatif["points"].push_back({{"devices", n},
                                {"tokens_per_s", 9 * n / (8 + n)},
                                {"samples_per_s", 1},
                                {"training", {{"global_batch", 64}}},
                                {"step_time_s", 2},
                                {"step_time_low_s", 1},
                                {"step_time_high_s", 4}});
  whatif["points"].push_back({{"refusal", "does not fit"}});
  const Json scaling = scaling_json(whatif);
  CHECK(scaling.at("unit") == "tokens");
  CHECK(scaling.at("strong") == true);
  REQUIRE(scaling.at("points").size() == 3);
  CHECK(scaling.at("points")[1].at("rate_low").get<double>() == Approx(0.9));
  CHECK(scaling.at("points")[1].at("rate_high").get<double>() == Approx(3.6));
  CHECK(scaling.at("fits")[0].at("serial").get<double>() == Approx(1.0 / 9));
  whatif["varied"] = {{"nodes", {"1"}}, {"zero", {"1"}}};
  CHECK(scaling_json(whatif).empty());
}
