#include "planner/search/split_search.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "planner/search/candidates.h"
#include "planner/space/order_choice.h"
#include "planner/space/space.h"
#include "planner/space/split_choice.h"
#include "planner/uncertainty/outlook.h"

namespace orrery::planner {
namespace {

// By how much the closed form must be better for another way than the one that gains most by itself.
constexpr double kLeadOfAnotherWay = 0.01;

// A way to split, and what its plans come to by the closed form.
struct Way {
  std::shared_ptr<const Job> marked, job;  // the latter in the order that suits
  std::int64_t plans = 0;
  double expected = std::numeric_limits<double>::infinity();
  double bound = std::numeric_limits<double>::infinity();
};

Way look_at(const std::shared_ptr<const Job>& marked, const Pins& pins, const SearchOptions& options) {
  Way way;
  way.marked = marked;
  way.job = with_order(marked, pins);
  try {
    Estimator estimator(way.job);
    const Fitting found = gather_fitting(way.job, pins, options.objective, 1, estimator, spread_of(*way.job),
                                         options.fit_probability);
    way.plans = found.candidates.count;
    way.bound = found.candidates.cut_bound;
    for (const Candidate& candidate : found.candidates.promising) {
      way.expected = std::min(way.expected, candidate.expected);
      way.bound = std::min(way.bound, candidate.bound);
    }
  } catch (const NoAnswer&) {
    // Nothing fits this way.
  } catch (const UserError&) {
    // The pins leave nothing of it.
  }
  return way;
}

bool same_splits(const Job& a, const Job& b) {
  return std::equal(a.workload.operators.begin(), a.workload.operators.end(), b.workload.operators.begin(),
                    b.workload.operators.end(),
                    [](const Operator& one, const Operator& other) { return one.split == other.split; });
}

}  // namespace

SplitJob with_best_splits(const std::shared_ptr<const Job>& job, const Pins& pins,
                          const SearchOptions& options) {
  const std::shared_ptr<const Job> most = with_splits(job, pins);
  if (pins.tp || !leaves_splits_open(*job)) return {with_order(most, pins)};
  std::vector<Way> ways;
  Pins own = pins;
  for (const int tp : divisors(job->cluster.devices())) {
    if (tp == 1) continue;
    own.tp = tp;
    ways.push_back(look_at(with_splits(job, own), own, options));
  }
  const auto is_most = [&](const Way& way) { return same_splits(*way.marked, *most); };
  if (std::all_of(ways.begin(), ways.end(), is_most)) return {with_order(most, pins)};
  Way best = look_at(most, pins, options);
  best.expected *= 1 - kLeadOfAnotherWay;
  for (const Way& way : ways)
    if (way.expected < best.expected) best = way;
  SplitJob result;
  for (const Way& way : ways) {
    if (same_splits(*way.marked, *best.marked)) continue;
    result.others += way.plans;
    result.others_bound = std::min(result.others_bound, way.bound);
  }
  result.job = best.job;
  return result;
}

std::optional<Plan> best_with_tensor_ranks(const std::shared_ptr<const Job>& job, const Pins& pins,
                                           const SearchOptions& options) {
  const auto able = std::make_shared<Job>(*job);
  if (able->runtime.abilities) able->runtime.abilities->dimensions.emplace_back("tp");
  const std::shared_ptr<const Job> split = with_best_splits(able, pins, options).job;
  Estimator estimator(split);
  try {
    const Fitting found = gather_fitting(split, pins, options.objective, 1, estimator, spread_of(*split),
                                         options.fit_probability);
    const std::vector<Candidate>& all = found.candidates.promising;
    const auto best = std::min_element(all.begin(), all.end(), [](const Candidate& a, const Candidate& b) {
      return a.expected < b.expected;
    });
    if (best != all.end() && best->choices.tp > 1) return Plan{split, best->choices};
  } catch (const NoAnswer&) {
    // Nothing fits.
  }
  return std::nullopt;
}

}  // namespace orrery::planner
