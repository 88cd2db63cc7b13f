#include "measurements/compare/step_kinds.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"

namespace orrery::measurements {
namespace {

constexpr std::string_view kOver = " over ";

// The step in the middle, by its mean time over the ranks; of ranks that share no step each one's own.
std::vector<const TracedStep*> middle_steps(const std::vector<const RankTrace*>& ranks) {
  std::map<std::int64_t, std::pair<int, double>> seen;  // by number: ranks, seconds
  for (const RankTrace* rank : ranks)
    for (const TracedStep& step : rank->steps) {
      auto& [count, seconds] = seen[step.number];
      ++count;
      seconds += step.seconds;
    }
  // Of our own executor the first one warms up.
  const bool warm_up = ranks.front()->of_instructions && seen.size() > 1;
  std::vector<std::pair<double, std::int64_t>> common;
  for (const auto& [number, one] : seen)
    if (one.first == static_cast<int>(ranks.size()) && !(warm_up && number == seen.begin()->first))
      common.emplace_back(one.second, number);
  std::sort(common.begin(), common.end());
  std::vector<const TracedStep*> steps;
  for (const RankTrace* rank : ranks) {
    if (!common.empty()) {
      const std::int64_t number = common[(common.size() - 1) / 2].second;
      steps.push_back(&*std::find_if(rank->steps.begin(), rank->steps.end(),
                                     [&](const TracedStep& step) { return step.number == number; }));
      continue;
    }
    std::vector<const TracedStep*> own;
    for (const TracedStep& step : rank->steps) own.push_back(&step);
    const auto middle = own.begin() + static_cast<std::ptrdiff_t>((own.size() - 1) / 2);
    std::nth_element(own.begin(), middle, own.end(),
                     [](const TracedStep* a, const TracedStep* b) { return a->seconds < b->seconds; });
    steps.push_back(*middle);
  }
  return steps;
}

std::map<std::string, KindTime> by_kind(const TracedStep& step) {
  std::map<std::string, KindTime> kinds;
  for (const Activity& activity : step.activities) {
    KindTime& kind = kinds[activity.kind];
    kind.communication = activity.communication;
    kind.count += static_cast<double>(activity.count);
    kind.seconds += activity.seconds;
  }
  return kinds;
}

StepKinds in_this_detail(const StepKinds& step, int detail) {
  StepKinds result = step;
  result.kinds.clear();
  for (const auto& [name, kind] : step.kinds) {
    result.kinds[kind.communication ? in_detail(name, detail) : name].add(kind);
  }
  return result;
}

}  // namespace

void KindTime::add(const KindTime& more, double ranks) {
  communication = more.communication;
  count += more.count / ranks;
  seconds += more.seconds / ranks;
}

double StepKinds::at_once_s() const {
  double sum = idle_s - seconds;
  for (const auto& [name, kind] : kinds) sum += kind.seconds;
  // What adding up leaves of nothing is no time.
  constexpr double kRounding = 1e-9;
  return std::abs(sum) < kRounding * seconds ? 0 : sum;
}

std::string in_detail(const std::string& kind, int detail) {
  if (detail == 0) return std::string(name_of(KernelClass::collective));
  return detail == 1 ? kind.substr(0, kind.find(kOver)) : kind;
}

int detail_of(const StepKinds& step) {
  int detail = 2;
  for (const auto& [name, kind] : step.kinds) {
    if (!kind.communication || name == kSendReceive) continue;
    if (name == name_of(KernelClass::collective)) return 0;
    // Kinds of instructions have no sizes, and need none.
    if (name.find(kOver) == std::string::npos && !name.ends_with("_comm")) detail = 1;
  }
  return detail;
}

StepKinds measured_step(const std::vector<const RankTrace*>& ranks) {
  ORRERY_CHECK(!ranks.empty(), "no rank");
  const auto number = static_cast<double>(ranks.size());
  const std::vector<const TracedStep*> steps = middle_steps(ranks);
  // Ranks that take part in as many like collectives: those that come early wait.
  std::map<std::pair<std::string, double>, double> least;
  for (const TracedStep* step : steps)
    for (const auto& [name, kind] : by_kind(*step)) {
      const auto [at, fresh] = least.try_emplace({name, kind.count}, kind.seconds);
      if (!fresh) at->second = std::min(at->second, kind.seconds);
    }
  StepKinds result;
  for (const TracedStep* step : steps) {
    std::map<std::string, KindTime> kinds = by_kind(*step);
    double all_s = step->idle_s - step->seconds, communication_s = 0, waited_s = 0;
    for (auto& [name, kind] : kinds) {
      all_s += kind.seconds;
      if (!kind.communication) continue;
      communication_s += kind.seconds;
      const double shortest_s = least.at({name, kind.count});
      waited_s += kind.seconds - shortest_s;
      kind.seconds = shortest_s;
    }
    // What waited behind computation did not cost the device anything.
    const double hidden = communication_s > 0 ? std::clamp(all_s / communication_s, 0.0, 1.0) : 0;
    result.seconds += step->seconds / number;
    result.idle_s += (step->idle_s + waited_s * (1 - hidden)) / number;
    result.waited_s += waited_s / number;
    for (const auto& [name, kind] : kinds) result.kinds[name].add(kind, number);
  }
  return result;
}

std::vector<planner::KindComparison> compare(StepKinds predicted, StepKinds measured) {
  const int detail = std::min(detail_of(predicted), detail_of(measured));
  predicted = in_this_detail(predicted, detail);
  measured = in_this_detail(measured, detail);
  std::set<std::string> names;
  for (const StepKinds* step : {&predicted, &measured})
    for (const auto& [name, kind] : step->kinds) names.insert(name);
  std::vector<planner::KindComparison> rows;
  const auto seconds_of = [](const StepKinds& step, const std::string& name) {
    const auto found = step.kinds.find(name);
    return found == step.kinds.end() ? 0 : found->second.seconds;
  };
  for (const std::string& name : names)
    rows.push_back({name, seconds_of(predicted, name), seconds_of(measured, name)});
  rows.push_back({"idle", predicted.idle_s, measured.idle_s});
  rows.push_back({"at once", predicted.at_once_s(), measured.at_once_s()});
  std::stable_sort(rows.begin(), rows.end(),
                   [](const planner::KindComparison& a, const planner::KindComparison& b) {
                     return std::abs(a.predicted_s - a.measured_s) > std::abs(b.predicted_s - b.measured_s);
                   });
  return rows;
}

}  // namespace orrery::measurements
