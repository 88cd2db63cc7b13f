#include "measurements/compare/trace_diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/error.h"
#include "base/format.h"
#include "measurements/compare/step_kinds.h"

namespace orrery::measurements {
namespace {

constexpr std::size_t kKindsNamed = 3;

using Pair = std::pair<const RankTrace*, const RankTrace*>;
using Key = std::pair<std::string, std::string>;  // stream, kind

// The same ranks of both; of one trace each, those two.
std::vector<Pair> pairs_of(const std::vector<RankTrace>& a, const std::vector<RankTrace>& b,
                           TraceDiff* diff) {
  std::vector<Pair> pairs;
  const auto usable = [&](const std::vector<RankTrace>& all) {
    std::vector<const RankTrace*> found;
    for (const RankTrace& trace : all) {
      if (trace.steps.empty())
        diff->left_out.push_back(fmt::format("{}: no device did anything", trace.file));
      else
        found.push_back(&trace);
    }
    return found;
  };
  const std::vector<const RankTrace*> left = usable(a), right = usable(b);
  if (left.size() == 1 && right.size() == 1) return {{left.front(), right.front()}};
  std::set<int> ranks;
  for (const RankTrace* one : left) {
    const auto same = std::find_if(right.begin(), right.end(),
                                   [&](const RankTrace* other) { return other->rank == one->rank; });
    if (same == right.end() || !ranks.insert(one->rank).second)
      diff->left_out.push_back(fmt::format("{}: rank {} of one side alone", one->file, one->rank));
    else
      pairs.emplace_back(one, *same);
  }
  for (const RankTrace* one : right)
    if (!ranks.contains(one->rank))
      diff->left_out.push_back(fmt::format("{}: rank {} of one side alone", one->file, one->rank));
  diff->ranks.assign(ranks.begin(), ranks.end());
  return pairs;
}

std::set<std::string> streams_of(const RankTrace& trace) {
  std::set<std::string> names;
  for (const TracedStep& step : trace.steps)
    for (const Activity& activity : step.activities) names.insert(activity.stream);
  return names;
}

// "computation 1", "communication 2": by what takes longest on a stream, and which stream of those does most.
std::map<std::string, std::string> roles_of(const RankTrace& trace) {
  std::map<std::string, std::array<double, 2>> seconds;
  for (const TracedStep& step : trace.steps)
    for (const Activity& activity : step.activities)
      seconds[activity.stream][activity.communication ? 1 : 0] += activity.seconds;
  std::vector<std::pair<std::string, std::array<double, 2>>> order(seconds.begin(), seconds.end());
  std::stable_sort(order.begin(), order.end(), [](const auto& x, const auto& y) {
    return x.second[0] + x.second[1] > y.second[0] + y.second[1];
  });
  std::map<std::string, std::string> roles;
  std::array<int, 2> count{};
  for (const auto& [stream, time] : order) {
    const std::size_t role = time[1] > time[0] ? 1 : 0;
    roles[stream] = fmt::format("{} {}", role == 1 ? "communication" : "computation", ++count[role]);
  }
  return roles;
}

// What traces of programs and of kernels both tell.
std::string common_kind(const Activity& activity) {
  if (activity.communication) return "communication";
  if (activity.kind == "optimizer") return activity.kind;
  return activity.kind == "input" || activity.kind == name_of(KernelClass::copy) ? "copies" : "computation";
}

enum class Alignment { names, roles, common };

struct Names {
  Alignment by = Alignment::names;
  int detail = 2;  // of communications' kinds
};

std::map<Key, Side> sides_of(const RankTrace& trace, const TracedStep& step, const Names& names) {
  const std::map<std::string, std::string> roles = roles_of(trace);
  std::map<Key, Side> sides;
  for (const Activity& activity : step.activities) {
    Key key{activity.stream, activity.communication ? in_detail(activity.kind, names.detail) : activity.kind};
    if (names.by == Alignment::roles) key.first = roles.at(activity.stream);
    if (names.by == Alignment::common)
      key = {activity.communication ? "communication" : "computation", common_kind(activity)};
    Side& side = sides[key];
    side.seconds += activity.seconds;
    side.count += static_cast<double>(activity.count);
  }
  return sides;
}

Names names_for(const std::vector<Pair>& pairs, TraceDiff* diff) {
  Names names;
  bool mixed = false, same = true;
  for (const auto& [a, b] : pairs) {
    mixed = mixed || a->of_instructions != b->of_instructions;
    same = same && streams_of(*a) == streams_of(*b);
    for (const RankTrace* trace : {a, b})
      if (!trace->of_instructions) names.detail = std::min(names.detail, detail_of(measured_step({trace})));
  }
  names.by = mixed ? Alignment::common : same ? Alignment::names : Alignment::roles;
  diff->aligned = mixed  ? "by what all traces tell"
                  : same ? "streams by name"
                         : "streams by what runs on them";
  return names;
}

void sort(std::vector<DiffRow>* rows) {
  std::stable_sort(rows->begin(), rows->end(), [](const DiffRow& x, const DiffRow& y) {
    return std::abs(x.b.seconds - x.a.seconds) > std::abs(y.b.seconds - y.a.seconds);
  });
}

void add(const Side& more, double share, Side* sum) {
  sum->seconds += share * more.seconds;
  sum->count += share * more.count;
}

std::vector<DiffRow> rows_of(const std::map<Key, std::pair<Side, Side>>& sums) {
  std::vector<DiffRow> rows;
  for (const auto& [key, sides] : sums) rows.push_back({key.first, key.second, sides.first, sides.second});
  sort(&rows);
  return rows;
}

}  // namespace

TraceDiff diff_of(const std::vector<RankTrace>& a, const std::vector<RankTrace>& b) {
  TraceDiff diff;
  const std::vector<Pair> pairs = pairs_of(a, b, &diff);
  if (pairs.empty())
    throw UserError("the traces have no rank in common" +
                        (diff.left_out.empty() ? std::string() : " (" + diff.left_out.front() + ")"),
                    "traces of the same ranks, or one of each");
  const Names names = names_for(pairs, &diff);
  std::size_t steps = pairs.front().first->steps.size();
  for (const auto& [left, right] : pairs) steps = std::min({steps, left->steps.size(), right->steps.size()});
  for (const auto& [left, right] : pairs)
    for (const RankTrace* trace : {left, right})
      if (trace->steps.size() > steps)
        diff.left_out.push_back(fmt::format("{}: {} steps beyond the other's {}", trace->file,
                                            trace->steps.size() - steps, steps));

  // Beside one whose steps are marked.
  for (const auto& [left, right] : pairs)
    if (left->has_steps() != right->has_steps())
      diff.left_out.push_back(fmt::format("{}: no step is marked in it, and all of it counts as one",
                                          (left->has_steps() ? right : left)->file));

  const double share = 1.0 / static_cast<double>(pairs.size()), of_steps = 1.0 / static_cast<double>(steps);
  std::map<Key, std::pair<Side, Side>> all;
  for (std::size_t i = 0; i < steps; ++i) {
    DiffStep step;
    std::map<Key, std::pair<Side, Side>> sums;
    for (const auto& [left, right] : pairs) {
      const TracedStep &one = left->steps[i], &other = right->steps[i];
      step.a = one.number;
      step.b = other.number;
      step.a_s += share * one.seconds;
      step.b_s += share * other.seconds;
      step.a_idle_s += share * one.idle_s;
      step.b_idle_s += share * other.idle_s;
      for (const auto& [key, side] : sides_of(*left, one, names)) add(side, share, &sums[key].first);
      for (const auto& [key, side] : sides_of(*right, other, names)) add(side, share, &sums[key].second);
    }
    for (const auto& [key, sides] : sums) {
      add(sides.first, of_steps, &all[key].first);
      add(sides.second, of_steps, &all[key].second);
    }
    step.rows = rows_of(sums);
    diff.a_s += of_steps * step.a_s;
    diff.b_s += of_steps * step.b_s;
    diff.a_idle_s += of_steps * step.a_idle_s;
    diff.b_idle_s += of_steps * step.b_idle_s;
    diff.steps.push_back(std::move(step));
  }
  diff.rows = rows_of(all);
  return diff;
}

std::vector<planner::KindComparison> TraceDiff::by_kind() const {
  std::map<std::string, planner::KindComparison> sums = {{"idle", {"idle", a_idle_s, b_idle_s}}};
  for (const DiffRow& row : rows) {
    planner::KindComparison& sum = sums[row.kind];
    sum.kind = row.kind;
    sum.predicted_s += row.a.seconds;
    sum.measured_s += row.b.seconds;
  }
  std::vector<planner::KindComparison> list;
  for (auto& [kind, sum] : sums) list.push_back(std::move(sum));
  std::stable_sort(list.begin(), list.end(), [](const auto& x, const auto& y) {
    return std::abs(x.predicted_s - x.measured_s) > std::abs(y.predicted_s - y.measured_s);
  });
  return list;
}

std::string explain(const TraceDiff& diff) {
  struct Part {
    std::string name;
    double difference_s;
  };
  std::vector<Part> parts = {{"idle time", diff.b_idle_s - diff.a_idle_s}};
  for (const DiffRow& row : diff.rows)
    parts.push_back({fmt::format("{} on {}", row.kind, row.stream), row.b.seconds - row.a.seconds});
  std::stable_sort(parts.begin(), parts.end(), [](const Part& x, const Part& y) {
    return std::abs(x.difference_s) > std::abs(y.difference_s);
  });
  std::erase_if(parts, [](const Part& part) { return part.difference_s == 0; });
  if (parts.empty()) return "A step of B takes as long as one of A, and is made of the same.";
  std::string text =
      fmt::format("A step of B takes {:.1f}% {} than one of A", 100 * std::abs(diff.relative_difference()),
                  diff.b_s >= diff.a_s ? "longer" : "less");
  for (std::size_t i = 0; i < parts.size() && i < kKindsNamed; ++i)
    text += fmt::format("{} {} by {} {}", i == 0 ? ":" : ",", parts[i].name,
                        human_seconds(std::abs(parts[i].difference_s)),
                        parts[i].difference_s >= 0 ? "longer" : "shorter");
  return text + ".";
}

}  // namespace orrery::measurements
