#include "planner/evaluation/interval.h"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::planner {
namespace {

// By level, the share of the variance that evidence about it would take away.
std::string what_would_narrow(const Response& response, const Spread& spread) {
  const std::array<double, kFactors> shares = shares_of_variance(response, spread);
  std::array<double, kLevels> levels{};
  double rest = 1;
  for (const Factor factor : kAllFactors) {
    const double share = shares[static_cast<std::size_t>(factor)];
    levels[static_cast<std::size_t>(level_of(factor))] += share;
    rest -= share;
  }
  if (spread.rests_on.runtime == Foundation::calibrated) return "more steps measured on this cluster";
  const auto most = std::max_element(levels.begin(), levels.end());
  if (rest >= *most) return "one step measured on this cluster";
  switch (static_cast<Level>(most - levels.begin())) {
    case Level::framework:
      return "a profile of this software, fitted to its own steps";
    case Level::device:
      return "a calibrated profile of this device";
    case Level::network:
      return "collectives measured on this network";
  }
  return "";
}

}  // namespace

void add_interval(Outlook* outlook, const Response& response, Evaluation* evaluation) {
  const Range step = step_range(response, outlook->spread());
  const Range memory = memory_range(outlook->spread());
  const double step_s = evaluation->step_time_s(), bytes = evaluation->memory.total;
  // Nothing computes faster than the peak of its devices.
  const double at_peak_s = std::min(throughput(*evaluation).hfu, 1.0) * step_s;
  evaluation->interval =
      Interval{{std::max(step.low * step_s, at_peak_s), step.high * step_s},
               {memory.low * bytes, memory.high * bytes},
               fit_probability(evaluation->memory.needed, evaluation->memory.capacity, outlook->spread()),
               outlook->spread().rests_on,
               what_would_narrow(response, outlook->spread())};
}

void add_interval(Evaluation* evaluation) {
  Outlook outlook(evaluation->plan.job);
  add_interval(&outlook, outlook.response(evaluation->plan.choices), evaluation);
}

StepDraws step_draws(const Plan& plan) {
  Outlook outlook(plan.job);
  const Response response = outlook.response(plan.choices);
  return {drawn_factors(response, outlook.spread()), outlook.spread().rests_on,
          what_would_narrow(response, outlook.spread())};
}

std::string what_it_rests_on(Foundation foundation) {
  return foundation == Foundation::datasheet ? "from its datasheet" : std::string(name_of(foundation));
}

std::string what_it_rests_on(const RestsOn& rests_on) {
  return fmt::format("runtime {}, device {}, network {}", what_it_rests_on(rests_on.runtime),
                     what_it_rests_on(rests_on.device), what_it_rests_on(rests_on.network));
}

}  // namespace orrery::planner
