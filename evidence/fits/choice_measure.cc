#include "evidence/fits/choice_measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

namespace orrery::evidence {
namespace {

// Measured within this of the best is the best.
constexpr double kTie = 0.01;
constexpr double kStated = 0.9;

struct Sums {
  int groups = 0, in_stated = 0;
  double nominal = 0, robust = 0, nominal_worst = 0, robust_worst = 0;
  double stated_regret = 0;                // of the robust choice
  double stated_best = 0, found_best = 0;  // the robust choice is the fastest
};

void add(const ChoiceGroup& group, Sums* sums, std::vector<std::pair<double, bool>>* stated) {
  std::vector<planner::Contender> contenders;
  double best = group.plans.front().measured_s, predicted = group.plans.front().contender.step_s;
  std::size_t nominal = 0, robust = 0;
  for (const Chosen& plan : group.plans) {
    contenders.push_back(plan.contender);
    best = std::min(best, plan.measured_s);
    predicted = std::min(predicted, plan.contender.step_s);
  }
  const std::vector<planner::Odds> odds = planner::odds_of(contenders, group.spread);
  std::vector<std::size_t> likely(odds.size());
  std::iota(likely.begin(), likely.end(), std::size_t{0});
  std::stable_sort(likely.begin(), likely.end(), [&](std::size_t a, std::size_t b) {
    return odds[a].probability_fastest > odds[b].probability_fastest;
  });
  const auto is_best = [&](std::size_t i) { return group.plans[i].measured_s <= best * (1 + kTie); };
  for (std::size_t i = 0; i < odds.size(); ++i) {
    if (contenders[i].step_s < contenders[nominal].step_s) nominal = i;
    if (odds[i].regret_s < odds[robust].regret_s) robust = i;
    stated->emplace_back(odds[i].probability_fastest, is_best(i));
  }
  double sum = 0;
  bool inside = false;
  for (const std::size_t i : likely) {
    if (sum >= kStated) break;
    sum += odds[i].probability_fastest;
    inside |= is_best(i);
  }
  const double lost_nominal = group.plans[nominal].measured_s / best - 1,
               lost_robust = group.plans[robust].measured_s / best - 1;
  ++sums->groups;
  sums->in_stated += inside ? 1 : 0;
  sums->nominal += lost_nominal;
  sums->robust += lost_robust;
  sums->nominal_worst = std::max(sums->nominal_worst, lost_nominal);
  sums->robust_worst = std::max(sums->robust_worst, lost_robust);
  sums->stated_regret += odds[robust].regret_s / predicted;
  sums->stated_best += odds[robust].probability_fastest;
  sums->found_best += is_best(robust) ? 1 : 0;
}

void print(const std::string& name, const Sums& of) {
  const double n = of.groups;
  fmt::print("| {} | {} | {:.1f}% | {:.1f}% | {:.1f}% | {:.1f}% | {:.1f}% | {:.0f}% | {:.0f}% | {:.0f}% |\n",
             name, of.groups, 100 * of.nominal / n, 100 * of.nominal_worst, 100 * of.robust / n,
             100 * of.robust_worst, 100 * of.stated_regret / n, 100 * of.stated_best / n,
             100 * of.found_best / n, 100 * of.in_stated / n);
}

Sums operator+(Sums a, const Sums& b) {
  a.groups += b.groups;
  a.in_stated += b.in_stated;
  a.nominal += b.nominal;
  a.robust += b.robust;
  a.nominal_worst = std::max(a.nominal_worst, b.nominal_worst);
  a.robust_worst = std::max(a.robust_worst, b.robust_worst);
  a.stated_regret += b.stated_regret;
  a.stated_best += b.stated_best;
  a.found_best += b.found_best;
  return a;
}

}  // namespace

void measure_choices(const std::vector<ChoiceGroup>& groups) {
  std::map<std::string, Sums> by_source;
  std::vector<std::pair<double, bool>> stated;
  for (const ChoiceGroup& group : groups) add(group, &by_source[group.source], &stated);
  fmt::print(
      "| source | groups | nominal: regret | worst | robust: regret | worst | stated | stated to be the "
      "fastest | is | best among the stated 90% |\n|---|---|---|---|---|---|---|---|---|---|\n");
  Sums all;
  for (const auto& [source, sums] : by_source) {
    print(source, sums);
    all = all + sums;
  }
  print("all", all);
  constexpr std::array<double, 6> kEdges = {0, 0.05, 0.2, 0.4, 0.7, 1.0001};
  for (std::size_t e = 0; e + 1 < kEdges.size(); ++e) {
    double sum = 0, came = 0, count = 0;
    for (const auto& [probability, best] : stated) {
      if (probability < kEdges[e] || probability >= kEdges[e + 1]) continue;
      ++count, sum += probability, came += best ? 1 : 0;
    }
    if (count > 0)
      fmt::print("| {:.0f}% to {:.0f}% | {:.0f} plans | {:.0f}% stated | {:.0f}% were the fastest |\n",
                 100 * kEdges[e], std::min(100.0, 100 * kEdges[e + 1]), count, 100 * sum / count,
                 100 * came / count);
  }
}

}  // namespace orrery::evidence
