#include "program/measured/plans_alike.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace orrery {
namespace {

// So many doublings, or differences in kind, until the correlation has fallen to 1/e. Chosen on the open
// tables, one for all (docs/accuracy.md, "Five steps of a site").
constexpr double kDoublings = 6;
// A plan of which less is its own is one of those that are known.
constexpr double kOwnShare = 1e-6;

double doublings(double a, double b) {
  return std::abs(std::log2(a / b));
}

}  // namespace

MeasuredPlan as_measured(const Job& job, const Choices& c) {
  MeasuredPlan plan;
  plan.steps = 1;
  plan.micro_batch_tokens = static_cast<double>(c.micro_batch) * std::max(1, job.training.seq_len) / c.cp;
  plan.micro_batches = std::max(
      1.0, static_cast<double>(job.training.global_batch) / (static_cast<double>(c.dp) * c.micro_batch));
  plan.tp = c.tp;
  plan.pp = c.pp;
  plan.cp = c.cp;
  plan.ep = c.ep;
  plan.interleave = c.interleave;
  plan.precision = name_of(job.training.precision);
  return plan;
}

double correlation(const MeasuredPlan& a, const MeasuredPlan& b) {
  const double apart = doublings(a.micro_batch_tokens, b.micro_batch_tokens) +
                       doublings(a.micro_batches, b.micro_batches) + doublings(a.tp, b.tp) +
                       doublings(a.pp, b.pp) + doublings(a.cp, b.cp) + doublings(a.ep, b.ep) +
                       doublings(a.interleave, b.interleave) + (a.precision == b.precision ? 0 : 1);
  return std::exp(-apart / kDoublings);
}

double left_by(const std::vector<double>& parts) {
  double left = 1;
  for (const double part : parts) left -= part * part;
  return std::max(0.0, left);
}

PlansAlike::PlansAlike(std::vector<MeasuredPlan> plans) {
  for (const MeasuredPlan& plan : plans) add(plan);
}

void PlansAlike::add(const MeasuredPlan& plan) {
  const std::vector<double> row = solved(plan);
  triangle_.insert(triangle_.end(), row.begin(), row.end());
  triangle_.push_back(std::sqrt(std::max(kOwnShare, left_by(row))));
  plans_.push_back(plan);
}

std::vector<double> PlansAlike::solved(const MeasuredPlan& plan) const {
  std::vector<double> parts(plans_.size());
  const double* row = triangle_.data();
  for (std::size_t i = 0; i < plans_.size(); ++i) {
    double left = correlation(plans_[i], plan);
    for (std::size_t j = 0; j < i; ++j) left -= row[j] * parts[j];
    parts[i] = left / row[i];
    row += i + 1;
  }
  return parts;
}

std::vector<double> PlansAlike::parts_of(const MeasuredPlan& plan) const {
  return steps_alike(plan) > 0 ? solved(plan) : std::vector<double>();
}

int PlansAlike::steps_alike(const MeasuredPlan& plan) const {
  int steps = 0;
  for (const MeasuredPlan& one : plans_)
    if (correlation(one, plan) >= kLeastAlike) steps += one.steps;
  return steps;
}

std::vector<MeasuredPlan> PlansAlike::chosen_from(const std::vector<MeasuredPlan>& all, std::size_t most) {
  PlansAlike known;
  while (known.plans_.size() < most) {
    const MeasuredPlan* next = nullptr;
    double largest = kOwnShare;
    for (const MeasuredPlan& one : all)
      if (const double left = left_by(known.solved(one)); left > largest) largest = left, next = &one;
    if (next == nullptr) break;
    known.add(*next);
  }
  for (MeasuredPlan& one : known.plans_) one.steps = 0;
  for (const MeasuredPlan& one : all) {
    MeasuredPlan* nearest = &known.plans_.front();
    for (MeasuredPlan& other : known.plans_)
      if (correlation(one, other) > correlation(one, *nearest)) nearest = &other;
    nearest->steps += one.steps;
  }
  return known.plans_;
}

PlansAlike measured_plans(const Job& job) {
  const auto& calibration = job.cluster.calibration;
  if (!calibration || calibration->runtime != job.runtime.name) return {};
  return PlansAlike(calibration->plans);
}

StepCorrection::StepCorrection(std::shared_ptr<const Job> job)
    : job_(std::move(job)), alike_(measured_plans(*job_)) {}

double StepCorrection::times(const Choices& c) {
  if (!any()) return 1;
  const auto same = [&](auto Choices::*field) { return last_.*field == c.*field; };
  if (last_times_ > 0 && same(&Choices::tp) && same(&Choices::pp) && same(&Choices::dp) &&
      same(&Choices::cp) && same(&Choices::ep) && same(&Choices::micro_batch) && same(&Choices::interleave))
    return last_times_;
  const SiteCalibration& calibration = *job_->cluster.calibration;
  const std::vector<double> parts = alike_.parts_of(as_measured(*job_, c));
  double log_time = 0;
  for (std::size_t i = 0; i < parts.size(); ++i)
    log_time += parts[i] * calibration.mean[calibration.first_of_plans() + i];
  last_ = c;
  return last_times_ = std::exp(log_time);
}

int StepCorrection::steps_alike(const Choices& c) const {
  return any() ? alike_.steps_alike(as_measured(*job_, c)) : 0;
}

CorrectedBy corrected_by(const Plan& plan) {
  StepCorrection correction(plan.job);
  return {correction.times(plan.choices), correction.steps_alike(plan.choices)};
}

}  // namespace orrery
