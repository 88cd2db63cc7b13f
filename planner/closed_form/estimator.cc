#include "planner/closed_form/estimator.h"

#include <utility>

#include "planner/closed_form/step_model.h"

namespace orrery::planner {

Estimator::Estimator(std::shared_ptr<const Job> job) : model_(std::make_unique<StepModel>(std::move(job))) {}

Estimator::~Estimator() = default;

StepTimes Estimator::times(const Choices& choices, const Bound& least) {
  return model_->times(choices, least);
}

Bound Estimator::lower_bound(const Choices& choices) {
  return model_->lower_bound(choices);
}

Bound Estimator::slot_bound(const Choices& choices) {
  return model_->slot_bound(choices);
}

Bound Estimator::layout_bound(const Choices& choices) {
  return model_->layout_bound(choices);
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
