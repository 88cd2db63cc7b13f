#include "evidence/fits/site_measure.h"

#include <fmt/format.h>

#include <cmath>
#include <set>

#include "base/random.h"
#include "base/statistics.h"

namespace orrery::evidence {
namespace {

using measurements::StepFit;
using measurements::StepRow;

constexpr std::size_t kFewestRows = 10, kGiven = 5;
constexpr int kDraws = 20;

// Of a site, or of several.
struct SiteFigures {
  double before = 0, after = 0;  // mean size of relative errors
  double coverage = 0, covered_before = 0;
  double same_model = 0;  // width of intervals of other plans of the models that were given, over that before
};

std::set<std::size_t> given(std::size_t rows, int draw) {
  const CounterRandom random(5, static_cast<std::uint64_t>(draw));
  std::set<std::size_t> chosen;
  for (std::uint64_t i = 0; chosen.size() < kGiven; ++i) chosen.insert(random.bits(i) % rows);
  return chosen;
}

SiteFigures figures_of(const Site& site) {
  std::vector<double> before, after, covered, covered_before, widths;
  for (int draw = 0; draw < kDraws; ++draw) {
    const std::set<std::size_t> chosen = given(site.rows.size(), draw);
    std::vector<StepRow> seen;
    std::set<std::string> models;
    for (const std::size_t i : chosen) {
      seen.push_back(site.rows[i]);
      models.insert(site.rows[i].model);
    }
    const StepFit fit(seen, site.prior);
    for (std::size_t i = 0; i < site.rows.size(); ++i) {
      if (chosen.contains(i)) continue;
      const StepRow& row = site.rows[i];
      const StepFit::Prediction was = fit.predict_before(row), is = fit.predict(row);
      before.push_back(std::abs(was.seconds / row.measured_s - 1));
      after.push_back(std::abs(is.seconds / row.measured_s - 1));
      const auto within = [&](const StepFit::Prediction& one) {
        return measurements::covers(one.seconds, one.sd, row.measured_s) ? 1.0 : 0.0;
      };
      covered_before.push_back(within(was));
      covered.push_back(within(is));
      if (models.contains(row.model)) widths.push_back(is.sd / was.sd);
    }
  }
  return {mean(before), mean(after), mean(covered), mean(covered_before), median(widths)};
}

void print(const std::string& name, std::size_t rows, const SiteFigures& of) {
  fmt::print(
      "{:70} {:4} | before {:5.1f}% covered {:3.0f}% | after {:5.1f}% covered {:3.0f}% | same model "
      "x{:.2f}\n",
      name, rows, 100 * of.before, 100 * of.covered_before, 100 * of.after, 100 * of.coverage, of.same_model);
}

}  // namespace

void measure_sites(const std::vector<Site>& sites) {
  std::vector<double> before, after, coverage, covered_before, same_model;
  std::size_t rows = 0;
  for (const Site& site : sites) {
    if (site.rows.size() < kFewestRows) continue;
    const SiteFigures of = figures_of(site);
    print(site.name, site.rows.size(), of);
    before.push_back(of.before);
    after.push_back(of.after);
    coverage.push_back(of.coverage);
    covered_before.push_back(of.covered_before);
    same_model.push_back(of.same_model);
    rows += site.rows.size();
  }
  print(fmt::format("MEAN of {} sites", after.size()), rows,
        {mean(before), mean(after), mean(coverage), mean(covered_before), mean(same_model)});
  print("MEDIAN", rows,
        {median(before), median(after), median(coverage), median(covered_before), median(same_model)});
}

}  // namespace orrery::evidence
