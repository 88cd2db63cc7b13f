#include "measurements/calibration/doubts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/format.h"
#include "evidence/words/machines.h"
#include "measurements/doubts.h"
#include "planner/closed_form/figures.h"
#include "planner/evaluation/evaluation.h"
#include "planner/evaluation/hardware.h"
#include "planner/uncertainty/site.h"
#include "program/measured/plans_alike.h"
#include "program/runtime_profile.h"

namespace orrery::measurements {
namespace {

// A calibration that is as near as this is good enough, whatever it was before.
constexpr double kSmallError = 0.1;
// Chance makes errors held back a little larger where nothing could be learned.
constexpr double kClearlyWorse = 1.25, kWorse = 1.05;
// Of intervals that 90% should lie in.
constexpr double kLeastCovered = 0.25;

std::string percent(double part) {
  return fmt::format("{:.1f}%", 100 * part);
}

std::string held_out_text(const std::string& what, const HeldOut& held_out) {
  return fmt::format(
      "{} held back are {} off in the mean, {} before, and {:.0f}% lie within their 90% intervals", what,
      percent(held_out.mape_after), percent(held_out.mape_before), 100 * held_out.coverage);
}

}  // namespace

const Learned* find(const std::vector<Learned>& learned, std::string_view name) {
  const auto found =
      std::find_if(learned.begin(), learned.end(), [&](const Learned& one) { return one.name == name; });
  return found == learned.end() ? nullptr : &*found;
}

void check_near(const std::vector<MeasuredStep>& steps, const std::vector<StepRow>& rows,
                const std::vector<std::size_t>& row_of) {
  std::vector<double> predicted_s;
  for (const StepRow& row : rows) predicted_s.push_back(planner::estimate_step_seconds(row.plan));
  std::vector<std::size_t> slow, fast;
  std::vector<double> times;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    times.push_back(steps[i].row.measured_s / predicted_s[row_of[i]]);
    if (times[i] > kFarthest) slow.push_back(i);
    if (times[i] < 1 / kFarthest) fast.push_back(i);
  }
  // Links that are faster than described make some plans fast.
  if (2 * fast.size() < steps.size()) fast.clear();
  const std::vector<std::size_t>& far = slow.empty() ? fast : slow;
  if (far.empty()) return;
  const MeasuredStep& first = steps[far.front()];
  const auto more = static_cast<std::int64_t>(far.size()) - 1;
  throw NoAnswer(fmt::format(
      "{}:{}: {:.4g} s a step is {}{}{} (expected steps within {:.0f} times)", first.file, first.line,
      first.row.measured_s, times_predicted(times[far.front()]), usual_mistakes(first, times[far.front()]),
      more > 0 ? fmt::format("; as far off: {} more", counted(more, "row")) : "", kFarthest));
}

void check_says_something(const Measurements& measured, const Calibrated& result) {
  const bool any = std::any_of(result.factors.begin(), result.factors.end(),
                               [](const Learned& one) { return one.source != kNotMeasured; });
  if (any || !measured.steps.empty()) return;
  throw NoAnswer(
      fmt::format("nothing could be learned from {}: no factor explains them",
                  counted_together(0, static_cast<int>(measured.collectives.size()),
                                   static_cast<int>(measured.products.size()) - result.small_products)));
}

void check_learned(const HeldOut& held_out, const HeldOut& own, std::vector<std::string>* doubts) {
  const auto refuse = [&](const std::string& why) {
    throw NoAnswer(fmt::format(
        "the steps contradict each other, or what they are said to be of: {} (expected steps that "
        "make predictions better)",
        why));
  };
  if (own.mape_after > kSmallError && own.mape_after > kWorse * own.mape_before)
    refuse(fmt::format("calibrated by them, their own mean error is {}, {} before", percent(own.mape_after),
                       percent(own.mape_before)));
  const bool worse = held_out.mape_after > held_out.mape_before;
  if (worse && held_out.mape_after > kSmallError &&
      (held_out.mape_after > kClearlyWorse * held_out.mape_before || held_out.coverage < kLeastCovered))
    refuse(held_out_text("steps", held_out));
  doubt_learned("steps", held_out, doubts);
}

void doubt_learned(const std::string& what, const HeldOut& held_out, std::vector<std::string>* doubts) {
  if (held_out.rows == 0 || (held_out.mape_after <= kWorse * held_out.mape_before &&
                             (held_out.mape_after <= kSmallError || held_out.coverage >= kLeastCovered)))
    return;
  doubts->push_back(held_out_text(what, held_out) + ": what is unlike them may be better predicted without");
}

// What was learned of the site holds for any software, and none comes so near the peak: the measured plans
// under what is typical of today's.
void doubt_site(const Measurements& measured, Calibrated* result) {
  constexpr double kMostUtilization = 0.8;
  const Learned* site = find(result->factors, planner::kSiteEffect);
  if (site == nullptr || site->mean >= 0) return;
  double most = 0, factor = 1;
  PlansSeen seen;
  for (const MeasuredStep& step : measured.steps) {
    const std::size_t known = seen.count();
    if (seen.number_of(step.row.plan) < known) continue;
    Job job = *step.row.plan.job;
    std::vector<evidence::Assumed> assumed;
    job.cluster = evidence::as_many(result->cluster, job.cluster.devices(), &assumed);
    // What measured plans share may be the site's as well.
    const double times = corrected_by({std::make_shared<const Job>(job), step.row.plan.choices}).times;
    job.cluster.calibration->plans.clear();
    job.runtime = default_runtime(RuntimeUse::gpu);
    job.training.fused_attention = job.runtime.fused_attention;
    planner::calibrate(&job);
    planner::Evaluation evaluation;
    evaluation.plan = {std::make_shared<const Job>(std::move(job)), step.row.plan.choices};
    evaluation.estimate_s = planner::estimate_step_seconds(evaluation.plan) * times;
    const double mfu = planner::throughput(evaluation).mfu;
    if (mfu > most) most = mfu, factor = std::exp(site->mean) * times;
  }
  if (most > kMostUtilization)
    result->doubts.push_back(
        fmt::format("by the factor x{:.2f} of 'site' and of plans alike the runtime {} would reach {:.0f}% "
                    "of the devices' peak: was {} what ran (column 'framework', or `runtime`)?",
                    factor, default_runtime(RuntimeUse::gpu).name, 100 * most, result->runtime));
}

}  // namespace orrery::measurements
