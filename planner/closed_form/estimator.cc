#include "planner/closed_form/estimator.h"

#include <utility>

#include "planner/closed_form/step_model.h"

namespace orrery::planner {

Estimator::Estimator(std::shared_ptr<const Job> job)
    : model_(std::make_unique<StepModel>(job)), correction_(std::move(job)) {}

Estimator::~Estimator() = default;

StepTimes Estimator::times(const Choices& choices, const Bound& least) {
  if (!correction_.any()) return model_->times(choices, least);
  const double factor = correction_.times(choices);
  StepTimes times = model_->times(choices, {least.step_s / factor, least.compute_s / factor});
  for (double* time : {&times.estimate_s, &times.lower_bound_s, &times.compute_s}) *time *= factor;
  return times;
}

Bound Estimator::corrected(const Bound& bound, const Choices& choices) {
  const double factor = correction_.times(choices);
  return {bound.step_s * factor, bound.compute_s * factor};
}

Bound Estimator::lower_bound(const Choices& choices) {
  return corrected(model_->lower_bound(choices), choices);
}

Bound Estimator::slot_bound(const Choices& choices) {
  return corrected(model_->slot_bound(choices), choices);
}

Bound Estimator::layout_bound(const Choices& choices) {
  return corrected(model_->layout_bound(choices), choices);
}

std::uint64_t Estimator::buckets_key(const Choices& choices) {
  return model_->buckets_key(choices);
}

std::vector<std::int64_t> Estimator::shares_by_speed(const Choices& choices) {
  return model_->shares_by_speed(choices);
}

std::vector<int> Estimator::cut_by_speed(const Choices& choices) {
  return model_->cut_by_speed(choices);
}

std::vector<double> Estimator::layer_seconds(const Choices& choices) {
  return model_->layer_seconds(choices);
}

double Estimator::stage_compute_s(const Choices& choices, int stage) {
  return model_->stage_compute_s(choices, stage);
}

}  // namespace orrery::planner
