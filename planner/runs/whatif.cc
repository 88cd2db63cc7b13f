#include "planner/runs/whatif.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <tuple>

#include "base/error.h"
#include "base/parallel.h"
#include "base/units.h"
#include "planner/evaluation/hardware.h"
#include "planner/runs/training_length.h"
#include "planner/search/pareto.h"
#include "sim/processes/isolate.h"

namespace orrery::planner::whatif {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Answer plan_point(const Point& point, int jobs) {
  SearchOptions options = point.options;
  options.jobs = jobs;
  options.subsets = false;  // the answer does not tell of them
  try {
    SearchResult result = search(point.job, point.pins, options);
    std::optional<double> nominal_s;
    if (result.nominal && result.nominal->step_time_s() < result.plans.front().step_time_s())
      nominal_s = result.nominal->step_time_s();
    return {Planned{std::move(result.plans.front()), result.candidates, result.proven, result.gap, nominal_s},
            "", false};
  } catch (const UserError& error) {
    return {{}, error.what(), true};
  } catch (const NoAnswer& answer) {
    return {{}, answer.what(), false};
  }
}

// What is planned of a point: all but what its devices cost, which is alike for all of them and so ranks no
// plan before another.
Combination but_for_price(const Combination& vary) {
  Combination searched;
  for (const auto& [key, value] : vary)
    if (key != kPriceKey) searched.emplace_back(key, value);
  return searched;
}

// By point, the first that is planned alike.
std::vector<std::size_t> planned_as(const std::vector<Point>& points) {
  std::vector<std::size_t> first;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const Combination searched = but_for_price(points[i].vary);
    std::size_t at = i;
    if (searched.size() < points[i].vary.size())
      for (std::size_t before = 0; before < i && at == i; ++before)
        if (points[before].vary.size() == points[i].vary.size() &&
            but_for_price(points[before].vary) == searched)
          at = before;
    first.push_back(at);
  }
  return first;
}

// The answer to a point that differs in its devices' price.
Answer repriced(Answer answer, const Point& point) {
  if (!answer.best) return answer;
  Plan& plan = answer.best->evaluation.plan;
  auto job = std::make_shared<Job>(*plan.job);
  const double price = point.job->cluster.groups.front().node.price_usd_per_device_hour;
  job->cluster = with_price(std::move(job->cluster), price);
  plan.job = std::move(job);
  return answer;
}

// By how much of the limit a total exceeds it; at most 0 where it does not.
double excess(double value, double limit) {
  return value / limit - 1;
}

double worst_excess(const Total& total, const Limits& limits) {
  double worst = -1;
  if (limits.deadline_s) worst = std::max(worst, excess(total.time_s, *limits.deadline_s));
  if (limits.budget_usd)
    worst = std::max(worst, excess(total.cost_usd.value_or(kInfinity), *limits.budget_usd));
  return worst;
}

// The index whose `value` is least, among those with a total that meets the limits and has one.
template <typename Value>
std::optional<std::size_t> least(const std::vector<std::optional<Total>>& totals, const Limits& limits,
                                 Value value) {
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < totals.size(); ++i) {
    if (!totals[i] || !meets(*totals[i], limits)) continue;
    if (!best || value(*totals[i]) < value(*totals[*best])) best = i;
  }
  return best;
}

std::vector<std::size_t> front_of(const std::vector<std::optional<Total>>& totals) {
  std::vector<std::size_t> priced;
  std::vector<Figures> figures;
  for (std::size_t i = 0; i < totals.size(); ++i) {
    if (!totals[i] || !totals[i]->cost_usd) continue;
    priced.push_back(i);
    Figures& point = figures.emplace_back();
    point.step_s = totals[i]->time_s;
    point.cost_usd = *totals[i]->cost_usd;
  }
  std::vector<std::size_t> front = pareto_front(figures);
  for (std::size_t& index : front) index = priced[index];
  return front;
}

double rate_per_device(const Point& point, const Planned& best) {
  const Throughput rate = throughput(best.evaluation);
  const bool tokens = point.job->training.seq_len > 0;
  return (tokens ? rate.tokens_per_s : rate.samples_per_s) / point.job->cluster.devices();
}

std::vector<std::optional<double>> scaling_efficiency(const std::vector<Point>& points,
                                                      const std::vector<Answer>& answers) {
  std::vector<std::optional<double>> efficiency(points.size());
  double first = 0;
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (!answers[i].best) continue;
    const double rate = rate_per_device(points[i], *answers[i].best);
    if (first == 0) first = rate;
    efficiency[i] = rate / first;
  }
  return efficiency;
}

void check_goal(const std::vector<Point>& points, const Goal& goal, const Limits& limits) {
  if (points.empty()) throw UserError("no points to plan", "expected at least one");
  for (const Point& point : points)
    if (goal.in_tokens && point.job->training.seq_len == 0)
      throw UserError(fmt::format("`tokens` does not apply to {}", point.job->workload.name),
                      "its samples are not counted in tokens; expected `samples`");
  const bool priced = std::any_of(points.begin(), points.end(),
                                  [](const Point& point) { return usd_per_s(point.job->cluster) > 0; });
  if (limits.budget_usd && !priced)
    throw UserError(fmt::format("`budget_usd`: {} states no price", points.front().job->cluster.name),
                    "expected price_usd_per_device_hour in the cluster file, or `vary` price=USD");
}

void check_any_sound(const std::vector<Point>& points, const std::vector<Answer>& answers) {
  if (std::any_of(answers.begin(), answers.end(), [](const Answer& a) { return !a.contradiction; })) return;
  const std::string where = describe(points.front().vary);
  throw UserError(where.empty() ? answers.front().refusal : where + ": " + answers.front().refusal);
}

}  // namespace

std::string readable(double number) {
  const double size = std::abs(number);
  const int digits = size == 0 ? 0 : std::clamp(2 - static_cast<int>(std::floor(std::log10(size))), 0, 12);
  std::string text = fmt::format("{:.{}f}", number, digits);
  const auto point = std::min(text.find('.'), text.size());
  const std::size_t first = number < 0 ? 1 : 0;
  for (std::size_t at = point; at > first + 3;) text.insert(at -= 3, 1, ',');
  return text;
}

std::vector<Combination> combinations(const std::vector<Varied>& varied) {
  std::vector<Combination> all(1);
  for (std::size_t k = 0; k < varied.size(); ++k) {
    const std::string& key = varied[k].key;
    if (std::any_of(varied.begin(), varied.begin() + static_cast<std::ptrdiff_t>(k),
                    [&](const Varied& before) { return before.key == key; }))
      throw UserError(fmt::format("`vary` {} is given twice", key), "expected all its values in one list");
    if (all.size() * varied[k].values.size() > kMostPoints)
      throw UserError(fmt::format("`vary` asks for more than {} combinations", kMostPoints),
                      "each is planned; expected fewer values");
    std::vector<Combination> longer;
    for (const Combination& combination : all) {
      for (const std::string& value : varied[k].values) {
        longer.push_back(combination);
        longer.back().emplace_back(key, value);
      }
    }
    all = std::move(longer);
  }
  return all;
}

std::string describe(const Combination& combination) {
  std::string text;
  for (const auto& [key, value] : combination)
    text += fmt::format("{}{}={}", text.empty() ? "" : ", ", key, value);
  return text;
}

std::vector<Answer> plan_points(const std::vector<Point>& points, int jobs, const Progress& progress) {
  if (jobs <= 0) jobs = processors();
  // Most of a search is one process's listing and ordering of plans: points side by side use the processors
  // better than the simulations of one.
  const std::vector<std::size_t> first = planned_as(points);
  std::vector<std::size_t> searched;
  for (std::size_t i = 0; i < points.size(); ++i)
    if (first[i] == i) searched.push_back(i);
  const int count = static_cast<int>(searched.size());
  const int of_each = std::max(1, jobs / std::max(1, count));
  sim::start_server();
  std::vector<Answer> answers(points.size());
  for_each_in_parallel(
      count, jobs,
      [&](int i) {
        const std::size_t at = searched[static_cast<std::size_t>(i)];
        answers[at] = plan_point(points[at], of_each);
      },
      progress);
  for (std::size_t i = 0; i < points.size(); ++i)
    if (first[i] != i) answers[i] = repriced(answers[first[i]], points[i]);
  return answers;
}

Total total_of(const Job& job, double step_s, double step_energy_j, const Goal& goal) {
  Total total;
  total.steps = steps_for(job.training, goal.amount, goal.in_tokens);
  if (goal.asked) total.steps = std::ceil(total.steps);
  total.time_s = total.steps * step_s;
  total.device_hours = total.time_s * job.cluster.devices() / kSecondsPerHour;
  if (const double price = usd_per_s(job.cluster); price > 0) total.cost_usd = price * total.time_s;
  if (states_power(job.cluster)) total.energy_j = total.steps * step_energy_j;
  return total;
}

bool meets(const Total& total, const Limits& limits) {
  return worst_excess(total, limits) <= 0;
}

Selection select_points(const std::vector<std::optional<Total>>& totals, const Limits& limits) {
  const auto cost = [](const Total& total) { return total.cost_usd.value_or(kInfinity); };
  Selection selection;
  selection.fastest =
      least(totals, limits, [&](const Total& total) { return std::make_tuple(total.time_s, cost(total)); });
  selection.cheapest =
      least(totals, limits, [&](const Total& total) { return std::make_tuple(cost(total), total.time_s); });
  if (selection.cheapest && !totals[*selection.cheapest]->cost_usd) selection.cheapest.reset();
  selection.front = front_of(totals);
  if (selection.front.empty()) {
    const auto quickest = least(totals, {}, [](const Total& total) { return total.time_s; });
    if (quickest) selection.front = {*quickest};
  }
  return selection;
}

std::optional<std::size_t> faster_as_predicted(const Result& result) {
  if (!result.selection.fastest) return {};
  constexpr double kWorthSaying = 0.99;
  double least_s = kWorthSaying * result.totals[*result.selection.fastest]->time_s;
  std::optional<std::size_t> found;
  for (std::size_t i = 0; i < result.points.size(); ++i) {
    const std::optional<Planned>& best = result.answers[i].best;
    if (!best || !best->nominal_step_s || !meets(*result.totals[i], result.limits)) continue;
    const double time_s = result.totals[i]->steps * *best->nominal_step_s;
    if (time_s >= least_s) continue;
    least_s = time_s;
    found = i;
  }
  return found;
}

bool Selection::on_front(std::size_t point) const {
  return std::find(front.begin(), front.end(), point) != front.end();
}

std::optional<std::size_t> nearest(const std::vector<std::optional<Total>>& totals, const Limits& limits) {
  return least(totals, {}, [&](const Total& total) { return worst_excess(total, limits); });
}

namespace {

// "3.00 days (10.0%) too long"; "60.0 days too long, 3.00 times the deadline" from twice the limit on.
std::string beyond(double by, double factor, std::string_view unit, std::string_view too,
                   std::string_view limit) {
  if (factor < 2) return fmt::format("{} {} ({:.1f}%) too {}", readable(by), unit, 100 * (factor - 1), too);
  return fmt::format("{} {} too {}, {} times the {}", readable(by), unit, too, readable(factor), limit);
}

}  // namespace

std::string miss_of(const Total& total, const Limits& limits) {
  std::string text;
  if (limits.deadline_s && total.time_s > *limits.deadline_s)
    text = fmt::format("takes {} days, {}", readable(total.time_s / kSecondsPerDay),
                       beyond((total.time_s - *limits.deadline_s) / kSecondsPerDay,
                              total.time_s / *limits.deadline_s, "days", "long", "deadline"));
  if (!limits.budget_usd || meets(total, {{}, limits.budget_usd})) return text;
  if (!text.empty()) text += " and ";
  if (!total.cost_usd) return text + "has no price";
  return text + fmt::format("costs {} USD, {}", readable(*total.cost_usd),
                            beyond(*total.cost_usd - *limits.budget_usd, *total.cost_usd / *limits.budget_usd,
                                   "USD", "much", "budget"));
}

Result plan_points(std::vector<Varied> varied, std::vector<Point> points, const Goal& goal,
                   const Limits& limits, int jobs, const Progress& progress) {
  check_goal(points, goal, limits);
  const auto start = std::chrono::steady_clock::now();
  Result result{std::move(varied), std::move(points), {}, goal, limits, {}, {}, {}, 0};
  result.answers = plan_points(result.points, jobs, progress);
  result.search_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  check_any_sound(result.points, result.answers);
  for (std::size_t i = 0; i < result.points.size(); ++i) {
    const std::optional<Planned>& best = result.answers[i].best;
    result.totals.emplace_back();
    if (!best) continue;
    const double step_s = best->evaluation.step_time_s();
    result.totals.back() = total_of(*result.points[i].job, step_s, best->energy_j(), goal);
    const Range step = best->evaluation.interval->step_time_s;
    result.totals.back()->of_total = {step.low / step_s, step.high / step_s};
  }
  const auto several = std::count_if(result.varied.begin(), result.varied.end(),
                                     [](const Varied& v) { return v.values.size() > 1; });
  if (several == 1) result.efficiency = scaling_efficiency(result.points, result.answers);
  result.selection = select_points(result.totals, limits);
  return result;
}

}  // namespace orrery::planner::whatif
