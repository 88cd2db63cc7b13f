#include "measurements/calibration/steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/parallel.h"
#include "planner/closed_form/figures.h"
#include "planner/uncertainty/site.h"

namespace orrery::measurements {
namespace {

using planner::kFactors;
using planner::World;

constexpr std::size_t kSite = kFactors;
constexpr double kStep = 0.04;  // of a factor's logarithm, for a slope
constexpr int kStepRounds = 4;
constexpr std::size_t kMostPlans = 64;  // that stand for all
// A factor that no profile leaves uncertain (measured by our own executor) still has a little.
constexpr double kLeastSd = 0.01;

double predict_in(const Plan& plan, const World& world) {
  return planner::estimate_step_seconds({planner::job_in(world, *plan.job), plan.choices});
}

}  // namespace

std::size_t PlansSeen::number_of(const Plan& plan) {
  auto& of_job = plans_[plan.job.get()];
  for (const auto& [choices, number] : of_job)
    if (choices == plan.choices) return number;
  of_job.emplace_back(plan.choices, count_);
  return count_++;
}

StepFit::StepFit(std::vector<StepRow> rows, const StepPrior& prior) : rows_(std::move(rows)), prior_(prior) {
  for (const planner::Factor factor : planner::kAllFactors)
    effects_.push_back({std::string(planner::name_of(factor)),
                        std::max(kLeastSd, prior_.factor[static_cast<std::size_t>(factor)])});
  effects_.push_back({std::string(planner::kSiteEffect), prior_.site});
  for (const StepRow& row : rows_)
    if (model_of(row) < 0) effects_.push_back({row.model, prior_.model});
  std::vector<MeasuredPlan> plans;
  for (const StepRow& row : rows_)
    plans.insert(plans.end(), static_cast<std::size_t>(row.times),
                 as_measured(*row.plan.job, row.plan.choices));
  alike_ = PlansAlike(PlansAlike::chosen_from(plans, kMostPlans));
  for (std::size_t i = 0; i < alike_.plans().size(); ++i)
    effects_.push_back({fmt::format("plans alike, part {}", i + 1), prior_.alike});
  posterior_.mean.assign(effects_.size(), 0);
  for (int round = 0; round < kStepRounds; ++round) {
    seen_ = seen_at(posterior_.mean);
    posterior_ = posterior_of(effects_, seen_, kNoiseFreedom);
  }
}

double StepFit::own_sd() const {
  return prior_.row * std::sqrt(posterior_.scale);
}

double StepFit::alike_sd() const {
  return prior_.alike * std::sqrt(posterior_.scale);
}

int StepFit::model_of(const StepRow& row) const {
  const auto found = std::find_if(effects_.begin(), effects_.end(),
                                  [&](const Effect& one) { return one.name == row.model; });
  return found == effects_.end() ? -1 : static_cast<int>(found - effects_.begin());
}

World StepFit::world_of(const std::vector<double>& means, int model) const {
  World world;
  std::copy_n(means.begin(), kFactors, world.log_time.begin());
  return world +=
         planner::of_everything(means[kSite] + (model < 0 ? 0 : means[static_cast<std::size_t>(model)]));
}

StepFit::Looked StepFit::look(const StepRow& row, const std::vector<double>& means) const {
  const int model = model_of(row);
  const World world = world_of(means, model);
  Looked looked{predict_in(row.plan, world), std::vector<double>(effects_.size(), 0)};
  const auto slope = [&](const World& step) {
    World other = world;
    return std::log(predict_in(row.plan, other += step) / looked.seconds) / kStep;
  };
  for (const planner::Factor factor : planner::kAllFactors) {
    World step;
    step[factor] = kStep;
    looked.slopes[static_cast<std::size_t>(factor)] = slope(step);
  }
  looked.slopes[kSite] = slope(planner::of_everything(kStep));
  if (model >= 0) looked.slopes[static_cast<std::size_t>(model)] = looked.slopes[kSite];
  const std::vector<double> parts = alike_.parts_of(as_measured(*row.plan.job, row.plan.choices));
  const std::size_t first = effects_.size() - alike_.plans().size();
  double log_time = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    looked.slopes[first + i] = parts[i];
    log_time += parts[i] * means[first + i];
  }
  looked.seconds *= std::exp(log_time);
  looked.own_variance =
      prior_.row * prior_.row + row.widens * row.widens + prior_.alike * prior_.alike * left_by(parts);
  return looked;
}

std::vector<Seen> StepFit::seen_at(const std::vector<double>& means) const {
  std::vector<Seen> seen(rows_.size());
  for_each_in_parallel(static_cast<int>(rows_.size()), processors(), [&](int i) {
    const StepRow& row = rows_[static_cast<std::size_t>(i)];
    Looked looked = look(row, means);
    double y = std::log(row.measured_s / looked.seconds);
    for (std::size_t e = 0; e < means.size(); ++e) y += looked.slopes[e] * means[e];
    seen[static_cast<std::size_t>(i)] = {std::move(looked.slopes), y, std::sqrt(looked.own_variance),
                                         static_cast<double>(row.times), row.within};
  });
  return seen;
}

StepFit::Prediction StepFit::predict_by(const Posterior& posterior, const StepRow& row) const {
  const Looked looked = look(row, posterior.mean);
  double variance = posterior.variance_of(looked.slopes) + posterior.scale * looked.own_variance;
  if (model_of(row) < 0) variance += prior_.model * prior_.model;
  return {looked.seconds, std::sqrt(variance)};
}

StepFit::Prediction StepFit::predict_before(const StepRow& row) const {
  StepFit nothing({}, prior_);
  nothing.prior_.row = prior_.unmeasured;
  nothing.prior_.alike = 0;
  return nothing.predict(row);
}

HeldOut StepFit::held_out() const {
  Errors errors;
  const std::vector<int> folds = folds_of(rows_.size());
  for (int fold = 0; fold < number_of_folds(rows_.size()); ++fold) {
    std::vector<Seen> others;
    for (std::size_t i = 0; i < rows_.size(); ++i)
      if (folds[i] != fold) others.push_back(seen_[i]);
    const Posterior posterior = posterior_of(effects_, others, kNoiseFreedom);
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      if (folds[i] != fold) continue;
      const Prediction predicted = predict_by(posterior, rows_[i]);
      errors.add(predict_in(rows_[i].plan, {}), predicted.seconds, predicted.sd, rows_[i].measured_s);
    }
  }
  return errors.sum();
}

HeldOut StepFit::own() const {
  Errors errors;
  for (const StepRow& row : rows_) {
    const Prediction predicted = predict(row);
    errors.add(predict_in(row.plan, {}), predicted.seconds, predicted.sd, row.measured_s);
  }
  return errors.sum();
}

}  // namespace orrery::measurements
