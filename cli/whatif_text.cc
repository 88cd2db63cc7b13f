// A what-if for people: a row a point, and what of it answers.
#include "cli/whatif_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <vector>

#include "base/format.h"
#include "base/units.h"
#include "cli/output.h"
#include "cli/plan_file.h"

namespace orrery::cli {
namespace {

namespace whatif = planner::whatif;

// What all points have in common, of what a headline says.
std::string headline(const whatif::Result& result) {
  std::string text;
  const auto add_common = [&](auto fact) {
    const std::string first = fact(*result.points.front().job);
    const bool common = std::all_of(result.points.begin(), result.points.end(),
                                    [&](const whatif::Point& point) { return fact(*point.job) == first; });
    if (common && !first.empty()) text += (text.empty() ? "" : ", ") + first;
  };
  add_common([](const Job& job) { return job.workload.name; });
  add_common([](const Job& job) { return job.cluster.name; });
  add_common([](const Job& job) { return counted(job.cluster.devices(), "device"); });
  add_common(
      [](const Job& job) { return fmt::format("global batch {}", with_commas(job.training.global_batch)); });
  add_common([](const Job& job) { return sequences_text(job.training); });
  add_common([](const Job& job) { return std::string(name_of(job.training.precision)); });
  add_common([](const Job& job) { return std::string(name_of(job.training.optimizer)); });
  add_common([](const Job& job) { return "runtime " + job.runtime.name; });
  if (result.goal.asked)
    text += fmt::format(", to train on {} {}", human_count(result.goal.amount), result.goal.unit());
  return text + "\n";
}

// Of all times: short trainings are not said in thousandths of a day.
struct TimeUnit {
  const char* name;
  double seconds;
};
TimeUnit time_unit(const whatif::Result& result) {
  if (!result.goal.asked) return {"hours", kSecondsPerHour};
  double longest_s = 0;
  for (const auto& total : result.totals)
    if (total) longest_s = std::max(longest_s, total->time_s);
  if (longest_s >= kSecondsPerDay) return {"days", kSecondsPerDay};
  return longest_s >= kSecondsPerHour ? TimeUnit{"hours", kSecondsPerHour} : TimeUnit{"minutes", 60};
}

// The other points within the limits that take as long and cost as much.
std::vector<std::size_t> alike(const whatif::Result& result, std::size_t i) {
  constexpr double kSame = 1e-9;
  const auto same = [](double a, double b) { return std::abs(a - b) <= kSame * std::max(a, b); };
  std::vector<std::size_t> found;
  for (std::size_t k = 0; k < result.totals.size(); ++k)
    if (k != i && result.totals[k] && whatif::meets(*result.totals[k], result.limits) &&
        same(result.totals[k]->time_s, result.totals[i]->time_s) &&
        same(result.totals[k]->cost_usd.value_or(0), result.totals[i]->cost_usd.value_or(0)))
      found.push_back(k);
  return found;
}

// Why a point is outside the limits; empty where it is within.
std::string outside(const whatif::Total& total, const whatif::Limits& limits) {
  if (whatif::meets(total, limits)) return {};
  const bool in_time = whatif::meets(total, {limits.deadline_s, {}});
  return in_time && !total.cost_usd ? "no price" : "over the limit";
}

std::string marks_of(const whatif::Result& result, std::size_t i) {
  std::vector<std::string> marks;
  const whatif::Selection& selection = result.selection;
  const auto is = [&](const std::optional<std::size_t>& one) {
    if (!one || !result.totals[i]) return false;
    const std::vector<std::size_t> same = alike(result, *one);
    return *one == i || std::find(same.begin(), same.end(), i) != same.end();
  };
  if (is(selection.fastest)) marks.emplace_back("fastest");
  if (is(selection.cheapest)) marks.emplace_back("cheapest");
  if (selection.on_front(i)) marks.emplace_back("front");
  const bool limited = result.limits.deadline_s || result.limits.budget_usd;
  if (limited && result.totals[i])
    if (std::string why = outside(*result.totals[i], result.limits); !why.empty())
      marks.push_back(std::move(why));
  return fmt::format("{}", fmt::join(marks, " "));
}

// "31.2 to 36.9": the 90% interval.
std::string range_text(double value, const whatif::Total& total) {
  return fmt::format("{} to {}", whatif::readable(value * total.of_total.low),
                     whatif::readable(value * total.of_total.high));
}

struct PointColumn {
  std::string name;
  std::function<std::string(std::size_t)> cell;  // of a point
  bool of_plan = true;                           // a point without one has nothing to say
};

std::vector<PointColumn> columns_of(const whatif::Result& result) {
  const whatif::Goal& goal = result.goal;
  const std::string per = goal.asked ? "" : fmt::format("/1e9 {}", goal.unit());
  std::vector<PointColumn> columns;
  for (std::size_t k = 0; k < result.varied.size(); ++k)
    columns.push_back(
        {result.varied[k].key, [&, k](std::size_t i) { return result.points[i].vary[k].second; }, false});
  const auto add_plan = [&](const char* name, auto cell) {
    columns.push_back({name, [&, cell](std::size_t i) { return cell(*result.answers[i].best); }});
  };
  const auto add_total = [&](const std::string& name, auto figure, double unit) {
    columns.push_back({name + per, [&, figure, unit](std::size_t i) {
                         const std::optional<double> value = figure(*result.totals[i]);
                         return value ? whatif::readable(*value / unit) : std::string("-");
                       }});
  };
  const auto add_total_if_known = [&](const char* name, auto figure, double unit) {
    if (std::any_of(result.totals.begin(), result.totals.end(),
                    [&](const auto& total) { return total && figure(*total); }))
      add_total(name, figure, unit);
  };
  add_plan("step", [](const auto& best) { return human_seconds(best.evaluation.step_time_s()); });
  if (goal.in_tokens)
    add_plan("tokens/s", [](const auto& best) {
      return whatif::readable(planner::throughput(best.evaluation).tokens_per_s);
    });
  else
    add_plan("samples/s", [](const auto& best) {
      return whatif::readable(planner::throughput(best.evaluation).samples_per_s);
    });
  add_plan("MFU", [](const auto& best) {
    return fmt::format("{:.1f}%", 100 * planner::throughput(best.evaluation).mfu);
  });
  const TimeUnit unit = time_unit(result);
  add_total(
      unit.name, [](const auto& total) { return std::optional(total.time_s); }, unit.seconds);
  columns.push_back({"90% interval", [&, unit](std::size_t i) {
                       const whatif::Total& total = *result.totals[i];
                       return range_text(total.time_s / unit.seconds, total);
                     }});
  add_total_if_known(
      "USD", [](const auto& total) { return total.cost_usd; }, 1);
  add_total_if_known(
      "MWh", [](const auto& total) { return total.energy_j; }, kJoulesPerMegawattHour);
  add_plan("memory", [](const auto& best) { return human_bytes(best.evaluation.memory.total); });
  if (!result.efficiency.empty())
    columns.push_back(
        {"scaling", [&](std::size_t i) { return fmt::format("{:.1f}%", 100 * *result.efficiency[i]); }});
  columns.push_back({"", [&](std::size_t i) { return marks_of(result, i); }, false});
  columns.push_back({"plan",
                     [&](std::size_t i) {
                       const std::optional<whatif::Planned>& best = result.answers[i].best;
                       return best ? best->words() : std::string("none");
                     },
                     false});
  return columns;
}

std::string points_table(const whatif::Result& result) {
  const std::vector<PointColumn> columns = columns_of(result);
  std::vector<std::string> head;
  for (const PointColumn& column : columns) head.push_back(column.name);
  std::vector<std::vector<std::string>> rows;
  for (std::size_t i = 0; i < result.points.size(); ++i) {
    std::vector<std::string>& row = rows.emplace_back();
    for (const PointColumn& column : columns)
      row.push_back(column.of_plan && !result.answers[i].best ? "-" : column.cell(i));
  }
  // In a narrow place first without what the sentences say of those that stand out.
  std::vector<std::string> optional = {"memory", "scaling"};
  optional.push_back(result.goal.in_tokens ? "tokens/s" : "samples/s");
  for (const char* name : {"MWh", "90% interval", "MFU"}) optional.emplace_back(name);
  return table(head, rows, {.optional = std::move(optional), .text = true});
}

// "Fastest: nodes=8, "; with what is as fast, where something is.
std::string where_text(const whatif::Result& result, const char* what, std::size_t i) {
  const std::vector<std::size_t> same = alike(result, i);
  if (!same.empty() && same.size() + 1 == result.points.size()) {
    std::vector<std::string> keys;
    for (const whatif::Varied& varied : result.varied)
      if (varied.values.size() > 1) keys.push_back(varied.key);
    return fmt::format("No difference by {}: all {} points take as long and cost as much: ",
                       fmt::join(keys, ", "), result.points.size());
  }
  std::string text = fmt::format("{}: ", what);
  if (const std::string where = whatif::describe(result.points[i].vary); !where.empty()) text += where + ", ";
  if (same.empty()) return text;
  std::vector<std::string> others;
  for (const std::size_t k : same) others.push_back(whatif::describe(result.points[k].vary));
  return text + fmt::format("alike {}, ", fmt::join(others, " and "));
}

std::string sentence(const whatif::Result& result, const char* what, std::size_t i) {
  const whatif::Total& total = *result.totals[i];
  std::string text = where_text(result, what, i);
  const TimeUnit unit = time_unit(result);
  text += fmt::format("{} {}", whatif::readable(total.time_s / unit.seconds), unit.name);
  text += fmt::format(", {} device hours", whatif::readable(total.device_hours));
  if (total.cost_usd) text += fmt::format(", {} USD", whatif::readable(*total.cost_usd));
  if (total.energy_j)
    text += fmt::format(", {} MWh", whatif::readable(*total.energy_j / kJoulesPerMegawattHour));
  if (!result.goal.asked) text += fmt::format(" for 1e9 {}", result.goal.unit());
  text += fmt::format("; 90% interval {} {}", range_text(total.time_s / unit.seconds, total), unit.name);
  if (total.cost_usd) text += fmt::format(", {} USD", range_text(*total.cost_usd, total));
  return text + ".\n";
}

// One line where all points rest on the same; else a line for each of what they rest on, with its first
// point.
std::string foundations(const whatif::Result& result) {
  std::vector<std::pair<std::string, std::string>> lines;  // what, of which point
  for (std::size_t i = 0; i < result.points.size(); ++i) {
    if (!result.answers[i].best) continue;
    const planner::Interval& interval = *result.answers[i].best->evaluation.interval;
    const std::string what = what_it_rests_on(interval.rests_on, interval.narrowed_by);
    if (std::none_of(lines.begin(), lines.end(), [&](const auto& line) { return line.first == what; }))
      lines.emplace_back(what, whatif::describe(result.points[i].vary));
  }
  if (lines.size() == 1) return lines.front().first + "\n";
  std::string text;
  for (const auto& [what, where] : lines) text += fmt::format("{}: {}\n", where, what);
  return text;
}

bool has(const whatif::Combination& combination, const std::pair<std::string, std::string>& varied) {
  return std::find(combination.begin(), combination.end(), varied) != combination.end();
}

// The fastest and the cheapest of those that stand out, as sentences.
std::string best_points(const whatif::Result& result, const whatif::Selection& selection) {
  const auto& [cheapest, fastest, front] = selection;
  if (!fastest) return {};
  if (fastest == cheapest) return sentence(result, "Fastest and cheapest", *fastest);
  std::string text = sentence(result, "Fastest", *fastest);
  if (cheapest) text += sentence(result, "Cheapest", *cheapest);
  return text;
}

// A price is what one assumes, not what one chooses: each has its own best.
std::string best_points_by_price(const whatif::Result& result, const whatif::Varied& price) {
  std::string text;
  for (const std::string& value : price.values) {
    std::vector<std::optional<whatif::Total>> totals = result.totals;
    for (std::size_t i = 0; i < totals.size(); ++i)
      if (!has(result.points[i].vary, {price.key, value})) totals[i].reset();
    text += best_points(result, whatif::select_points(totals, result.limits));
  }
  return text;
}

std::string best_points(const whatif::Result& result) {
  for (const whatif::Varied& varied : result.varied)
    if (varied.key == "price" && varied.values.size() > 1) return best_points_by_price(result, varied);
  return best_points(result, result.selection);
}

// What is not known of the clusters, each once.
std::string unknowns(const whatif::Result& result) {
  std::vector<std::string> unpriced, unpowered;
  const auto priced_elsewhere = [&](const std::string& name) {
    return std::any_of(result.points.begin(), result.points.end(), [&](const whatif::Point& other) {
      return other.job->cluster.name == name && planner::usd_per_s(other.job->cluster) > 0;
    });
  };
  const auto add = [](std::vector<std::string>& names, const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const whatif::Point& point : result.points) {
    const Cluster& cluster = point.job->cluster;
    if (planner::usd_per_s(cluster) <= 0)
      add(unpriced, priced_elsewhere(cluster.name) ? whatif::describe(point.vary) : cluster.name);
    if (!states_power(cluster)) add(unpowered, cluster.name);
  }
  std::string text;
  if (!unpriced.empty())
    text += fmt::format(
        "No cost: no price is stated of {} (price_usd_per_device_hour in the cluster file, or "
        "--vary price=USD).\n",
        fmt::join(unpriced, ", "));
  if (!unpowered.empty())
    text += fmt::format("No energy: no power is stated of {} (peak_power_w in the device profile).\n",
                        fmt::join(unpowered, ", "));
  return text;
}

std::string how_sure(const whatif::Result& result) {
  int planned = 0, proven = 0;
  double widest = 0;
  for (const whatif::Answer& answer : result.answers) {
    if (!answer.best) continue;
    ++planned;
    proven += answer.best->proven ? 1 : 0;
    widest = std::max(widest, answer.best->gap);
  }
  std::string text = fmt::format("Planned {} of {} points in {}; {} proven best under this model", planned,
                                 result.points.size(), human_seconds(result.search_s), proven);
  if (proven < planned) text += fmt::format(", the others within {:.1f}% of their bounds", 100 * widest);
  return text + ".\n";
}

std::string refusals(const whatif::Result& result) {
  std::string text;
  for (std::size_t i = 0; i < result.points.size(); ++i) {
    if (result.answers[i].best) continue;
    const std::string where = whatif::describe(result.points[i].vary);
    text += fmt::format("No plan{}: {}.\n", where.empty() ? "" : " for " + where, result.answers[i].refusal);
  }
  return text;
}

}  // namespace

std::string text_of(const whatif::Result& result, bool shared_batch) {
  if (!whatif::nearest(result.totals, {}))  // no plan at all; a lone refusal is the error's to say
    return result.points.size() == 1 ? std::string() : refusals(result);
  std::string text = headline(result);
  if (shared_batch)
    text += "Without --global-batch every point has the default batch of the point with most devices.\n";
  text += best_points(result);
  if (const auto point = whatif::faster_as_predicted(result)) {
    const double step_s = *result.answers[*point].best->nominal_step_s;
    const std::string where = whatif::describe(result.points[*point].vary);
    const TimeUnit unit = time_unit(result);
    const std::string time = fmt::format(
        "{} {}", whatif::readable(result.totals[*point]->steps * step_s / unit.seconds), unit.name);
    text += fmt::format(
        "As predicted {}another plan takes less, {}, {} a step, and loses more where the "
        "prediction errs: --rank nominal compares such plans.\n",
        where.empty() ? "" : fmt::format("with {} ", where), time, human_seconds(step_s));
  }
  text += "\n" + points_table(result) + "\n";
  return text + foundations(result) + refusals(result) + unknowns(result) + how_sure(result);
}

}  // namespace orrery::cli
