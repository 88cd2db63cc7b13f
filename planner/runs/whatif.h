// What if: a plan for each combination of varied options, and what training to a given amount takes with each
// in time, money and energy.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "planner/search/search.h"

namespace orrery::planner::whatif {

constexpr std::size_t kMostPoints = 1000;

struct Varied {
  std::string key;  // an option's name, "micro-batch", or the hardware's (planner/evaluation/hardware.h)
  std::vector<std::string> values;
};

using Combination = std::vector<std::pair<std::string, std::string>>;  // key, value
// All of them, the first key's value changing slowest; the empty one where nothing is varied. Throws
// UserError where a key is varied twice or there are more than kMostPoints.
std::vector<Combination> combinations(const std::vector<Varied>& varied);
std::string describe(const Combination& combination);  // "nodes=64, network=2"

// A combination, ready to be searched.
struct Point {
  Combination vary;
  std::shared_ptr<const Job> job;
  Pins pins;
  SearchOptions options;
};

// The search's best plan.
struct Planned {
  Evaluation evaluation;
  std::int64_t candidates = 0;
  bool proven = false;
  double gap = 0;
  std::optional<double> nominal_step_s;  // of the plan that is faster as predicted, where that is another
  double energy_j() const { return evaluation.simulation->energy_j; }  // of one step
  std::string words() const { return planner::describe(evaluation.plan); }
};
struct Answer {
  std::optional<Planned> best;
  std::string refusal;         // where there is none: why
  bool contradiction = false;  // the refusal is a UserError's: the pins contradict each other or the job
};
using Progress = std::function<void(int done, int total)>;
// The search of each, once where points differ in the price of their devices alone, in order, `jobs` threads
// at a time (0: as many as processors); the same whatever it is. Starts the server of simulations
// (sim/processes/isolate.h). `progress` is called by the calling thread.
std::vector<Answer> plan_points(const std::vector<Point>& points, int jobs, const Progress& progress = {});

// What is trained: tokens or samples. Nothing asked: a billion, which need not be whole steps.
struct Goal {
  bool in_tokens = false;
  double amount = 1e9;
  bool asked = false;
  std::string_view unit() const { return in_tokens ? "tokens" : "samples"; }
};

// What the whole goal takes on all of a point's devices.
struct Total {
  double steps = 0;
  double time_s = 0;
  double device_hours = 0;
  std::optional<double> cost_usd;  // where the cluster states its price
  std::optional<double> energy_j;  // and its power
  // kCovered of such trainings take from `low` to `high` times what stands here, in time, cost and energy (as
  // if power stayed, whatever it is that takes longer).
  Range of_total{1, 1};
};
// `step_energy_j`: of a step, counted where all devices state their power.
Total total_of(const Job& job, double step_s, double step_energy_j, const Goal& goal);

struct Limits {
  std::optional<double> deadline_s, budget_usd;
};
// A cost that is not known meets no budget.
bool meets(const Total& total, const Limits& limits);

// Which points stand out; indices.
struct Selection {
  std::optional<std::size_t> cheapest, fastest;  // of those that meet all limits
  // Of time and cost, by rising time, whatever the limits; where no cost is known the fastest.
  std::vector<std::size_t> front;
  bool on_front(std::size_t point) const;
};
// No total: a point without a plan.
Selection select_points(const std::vector<std::optional<Total>>& totals, const Limits& limits);
// The point that is nearest to all limits, by the larger of the shares by which it misses them; none where no
// point has a total.
std::optional<std::size_t> nearest(const std::vector<std::optional<Total>>& totals, const Limits& limits);
struct Result;
// The point within all limits that takes the least time as predicted, where that is less by a hundredth than
// what the fastest takes, and by a plan that its search did not answer with (Rank::robust).
std::optional<std::size_t> faster_as_predicted(const Result& result);
// "takes 34.2 days, 4.20 days (14.0%) too long".
std::string miss_of(const Total& total, const Limits& limits);

struct Result {
  std::vector<Varied> varied;
  std::vector<Point> points;
  std::vector<Answer> answers;
  Goal goal;
  Limits limits;
  std::vector<std::optional<Total>> totals;
  // Tokens (or samples) a second and device beside those of the first point that has a plan. Empty unless
  // exactly one key has several values.
  std::vector<std::optional<double>> efficiency;
  Selection selection;
  double search_s = 0;
};
// Plans every point, `jobs` at a time, and adds up what the goal takes there. Throws UserError where the goal
// is in tokens and a model has no sequences, a budget is set and no cluster states its price, or the pins of
// every point contradict each other or the job.
Result plan_points(std::vector<Varied> varied, std::vector<Point> points, const Goal& goal,
                   const Limits& limits, int jobs, const Progress& progress = {});

// At least three digits that count, thousands apart: "1,400,685", "33.2", "0.0123".
std::string readable(double number);

std::string to_csv(const Result& result);

}  // namespace orrery::planner::whatif
