#include "orrery/against.h"

#include <fmt/format.h>

#include <cmath>

#include "base/error.h"
#include "base/statistics.h"
#include "measurements/kinds.h"
#include "orrery/orrery.h"
#include "planner/uncertainty/site.h"

namespace orrery {
namespace {

// What differs first; empty: nothing that a file says. Names of models differ from file to file, sharding and
// schedules are not printed by all.
std::string difference(const Plan& plan, const Plan& measured) {
  const Choices &a = plan.choices, &b = measured.choices;
  const Training &of = plan.job->training, &with = measured.job->training;
  const auto differs = [](std::string_view what, auto expected, auto found) {
    return expected == found ? std::string() : fmt::format("{} {} instead of {}", what, found, expected);
  };
  for (const std::string& found :
       {differs("a", planner::model_effect(plan.job->workload),
                planner::model_effect(measured.job->workload)),
        differs("devices:", a.world(), b.world()), differs("tp", a.tp, b.tp), differs("pp", a.pp, b.pp),
        differs("cp", a.cp, b.cp), differs("ep", a.ep, b.ep),
        differs("micro-batch", a.micro_batch, b.micro_batch),
        differs("a global batch of", of.global_batch, with.global_batch),
        differs("sequences of", of.seq_len, with.seq_len),
        differs("precision", name_of(of.precision), name_of(with.precision)),
        differs("recomputation", name_of(a.recompute), name_of(b.recompute))})
    if (!found.empty()) return found;
  return "";
}

}  // namespace

Against against(const Plan& plan, const std::vector<std::string>& files) {
  measurements::Measurements measured = measurements::read(files, {plan.job->cluster, ""});
  Against result;
  std::vector<double> seconds;
  for (const measurements::MeasuredStep& step : measured.steps) {
    if (const std::string why = difference(plan, step.row.plan); !why.empty()) {
      measured.ignore(step.file, step.line, why);
    } else {
      result.rows.push_back({step.file, step.line, step.row.measured_s, 0});
      seconds.push_back(step.row.measured_s);
    }
  }
  if (result.rows.empty())
    throw UserError(files.front(), 0,
                    fmt::format("holds no step of this plan: {}",
                                measured.ignored.empty() ? "it has no steps" : measured.ignored.front().why),
                    "a step of " + planner::describe(plan));
  result.predicted = simulate({plan, {}}).evaluation;
  for (AgainstRow& row : result.rows)
    row.relative_error = (result.predicted.step_time_s() - row.measured_s) / row.measured_s;
  result.measured_s = median(seconds);
  result.ignored = std::move(measured.ignored);
  return result;
}

}  // namespace orrery
