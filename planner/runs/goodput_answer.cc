#include "planner/runs/goodput_answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "base/error.h"
#include "base/format.h"

namespace orrery::planner {
namespace {

constexpr int kFewSpares = 8;

// Of a run, or of the mean of runs, that takes so long and works so long on each of its plans.
double energy_j(const GoodputQuestion& question, double time_s, const std::vector<double>& working_s) {
  const TrainingRun& run = question.run;
  const double nodes = run.plan().nodes;
  double idle_node_s = time_s * (nodes + run.spares);
  double energy = 0;
  for (std::size_t p = 0; p < run.plans.size(); ++p) {
    energy += working_s[p] / run.plans[p].step_s * run.plans[p].energy_j;
    idle_node_s -= working_s[p] * run.plans[p].nodes;
  }
  return energy + idle_node_s * question.idle_power_w / nodes;
}

double cost_usd(const GoodputQuestion& question, double time_s) {
  const TrainingRun& run = question.run;
  return question.usd_per_s * time_s * (1 + static_cast<double>(run.spares) / run.plan().nodes);
}

void check_it_ends(const TrainingRun& run, std::int64_t every, double expected_s) {
  if (expected_s <= kHopeless * run.ideal_s()) return;
  const double between_s = static_cast<double>(every) * run.plan().step_s + run.checkpoint.stall_s;
  throw NoAnswer(fmt::format(
      "the run does not end: it is interrupted every {} on average, but takes {} from one checkpoint to the "
      "next and {} to recover from an interruption{}",
      human_duration(1 / run.failures_per_s), human_duration(between_s), human_duration(run.down_s()),
      waiting_share(run) > 0.5 ? fmt::format("; the repair of a node takes {}", human_duration(run.repair_s))
                               : ""));
}

GoodputFigures figures_of(const GoodputQuestion& question) {
  const TrainingRun& run = question.run;
  GoodputFigures figures;
  figures.every = question.every > 0 ? std::min(question.every, run.steps) : best_interval(run);
  figures.spares = run.spares;
  const bool elastic = run.plans.size() > 1;
  figures.closed_form_s =
      elastic ? expected_active_s(run, figures.every) : expected_run_s(run, figures.every);
  check_it_ends(run, figures.every, figures.closed_form_s);
  figures.statistics = simulate_runs(run, figures.every, question.runs, question.seed);
  const double time_s = figures.statistics.time_s.mean;
  figures.goodput = run.ideal_s() / time_s;
  figures.closed_form_goodput = run.ideal_s() / figures.closed_form_s;
  if (question.usd_per_s > 0) figures.cost_usd = cost_usd(question, time_s);
  if (question.idle_power_w > 0) figures.energy_j = energy_j(question, time_s, figures.statistics.working_s);
  return figures;
}

// The question in a world where steps take so many times as long, at the power that they have.
GoodputQuestion slowed(GoodputQuestion question, double factor) {
  for (RunningPlan& plan : question.run.plans) {
    plan.step_s *= factor;
    plan.energy_j *= factor;
  }
  return question;
}

// Wherever failures alone spread runs more widely than all that is not known of the step.
std::string what_would_narrow(const StepDraws& draws, const RunStatistics& statistics) {
  const Range step = range_of(draws.factors);
  const bool by_chance =
      std::log(statistics.time_s.p95 / statistics.time_s.p5) > std::log(step.high / step.low);
  return by_chance ? "nothing that can be measured: when devices fail is chance" : draws.narrowed_by;
}

// The point is a mean, which few long runs may pull out of what nine in ten take.
Range with_point(Range range, double point) {
  return {std::min(range.low, point), std::max(range.high, point)};
}

std::optional<GoodputInterval> interval_of(const GoodputQuestion& question, const GoodputFigures& figures) {
  const StepDraws& draws = question.step_draws;
  if (draws.factors.empty()) return {};
  std::vector<double> times, goodputs, costs, energies;
  try {
    for (std::size_t i = 0; i < draws.factors.size(); ++i) {
      const GoodputQuestion drawn = slowed(question, draws.factors[i]);
      const TrainingRun& run = drawn.run;
      check_it_ends(run, figures.every, expected_active_s(run, figures.every));
      const RunOutcome outcome = simulate_run(run, figures.every, question.seed, i);
      const double time_s = outcome.spent.total();
      times.push_back(time_s);
      goodputs.push_back(run.ideal_s() / time_s);
      costs.push_back(cost_usd(drawn, time_s));
      energies.push_back(energy_j(drawn, time_s, outcome.working_s));
    }
  } catch (const NoAnswer&) {
    return {};
  }
  const Range step = range_of(draws.factors);
  const double step_s = question.run.plan().step_s;
  GoodputInterval interval{{step.low * step_s, step.high * step_s},
                           with_point(range_of(times), figures.statistics.time_s.mean),
                           with_point(range_of(goodputs), figures.goodput),
                           {},
                           {},
                           draws.rests_on,
                           what_would_narrow(draws, figures.statistics)};
  if (figures.cost_usd) interval.cost_usd = with_point(range_of(costs), *figures.cost_usd);
  if (figures.energy_j) interval.energy_j = with_point(range_of(energies), *figures.energy_j);
  return interval;
}

GoodputQuestion with_storage_twice_as_fast(GoodputQuestion question) {
  CheckpointTimes& checkpoint = question.run.checkpoint;
  if (!question.checkpoints_beside) checkpoint.stall_s /= 2;
  checkpoint.write_s /= 2;
  checkpoint.read_s /= 2;
  return question;
}

// None, the cheapest, and all up to two more than there are; of many only those near.
std::set<int> other_spares(int spares, int cheapest) {
  std::set<int> others = {0, spares + 1, spares + 2, cheapest};
  for (int n = std::max(0, spares - kFewSpares); n < spares; ++n) others.insert(n);
  others.erase(spares);
  return others;
}

void add(std::vector<Alternative>& alternatives, const std::string& key, const std::string& change,
         const GoodputQuestion& question) {
  try {
    alternatives.push_back({key, change, figures_of(question)});
  } catch (const NoAnswer&) {  // it does not end: nothing to choose
  }
}

}  // namespace

GoodputAnswer answer(const GoodputQuestion& question) {
  GoodputAnswer result{figures_of(question), {}, {}};
  result.interval = interval_of(question, result.figures);
  const std::int64_t every = result.figures.every;
  GoodputQuestion other = question;
  if (every > 1) {
    other.every = every / 2;
    add(result.alternatives, "checkpoint_interval_halved", "checkpoints twice as often", other);
  }
  if (every < question.run.steps) {
    other.every = std::min(2 * every, question.run.steps);
    add(result.alternatives, "checkpoint_interval_doubled", "checkpoints half as often", other);
  }
  add(result.alternatives, "storage_bandwidth_x2", "storage twice as fast",
      with_storage_twice_as_fast(question));
  if (question.run.repair_s > 0) {
    for (const int spares : other_spares(question.run.spares, cheapest_spares(question.run))) {
      other = question;
      other.run.spares = spares;
      add(result.alternatives, fmt::format("spares_{}", spares), counted(spares, "spare node"), other);
    }
  }
  if (question.run.plans.size() > 1) {
    other = question;
    other.run.plans.resize(1);
    add(result.alternatives, "not_elastic", "waiting instead of continuing with fewer replicas", other);
  }
  return result;
}

std::vector<std::pair<std::string, double>> lost_parts(const TimeSpent& spent) {
  return {{"checkpoint", spent.checkpoint}, {"rework", spent.rework}, {"detect", spent.detect},
          {"restart", spent.restart},       {"wait", spent.wait},     {"degraded", spent.degraded}};
}

}  // namespace orrery::planner
