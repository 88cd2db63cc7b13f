// The closed form: what a step takes, from the layers' times, the schedule's formula and the collectives on
// an idle network; and a bound that no simulation goes below. Each with what measured plans alike say. Tables
// of what plans share are filled at first use (step_model.h): the thousandth plan of a job costs a fraction
// of a microsecond, least where neighbours share much. Times are seconds; one estimator serves one thread.
// Nothing is thrown by a valid plan.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "program/measured/plans_alike.h"

namespace orrery::planner {

class StepModel;

struct StepTimes {
  double estimate_s = 0;     // unbiased: orders plans
  double lower_bound_s = 0;  // never above the simulated step: prunes
  double compute_s = 0;      // the compute stream busy, mean over the stages
};

// No simulation of a plan takes less of either.
struct Bound {
  double step_s = 0;
  double compute_s = 0;  // the compute stream busy, mean over the stages; 0 where devices are different
};

class Estimator {
 public:
  explicit Estimator(std::shared_ptr<const Job> job);
  ~Estimator();
  Estimator(const Estimator&) = delete;

  // The choices must have passed check_plan.
  StepTimes times(const Choices& choices) { return times(choices, lower_bound(choices)); }
  // The same where the bound is known.
  StepTimes times(const Choices& choices, const Bound& least);
  // The lower bound alone, cheaper.
  Bound lower_bound(const Choices& choices);
  double lower_bound_s(const Choices& choices) { return lower_bound(choices).step_s; }
  // A higher one, some hundred times as expensive: of a pipeline, its schedule slot by slot (slot_bound.cc).
  Bound slot_bound(const Choices& choices);
  // A bound of all plans that differ from `choices` in zero, shard_group, overlap_grad_reduce, bucket_bytes,
  // grad_compression and sync only: nothing of data parallelism is counted.
  Bound layout_bound(const Choices& choices);
  double layout_bound_s(const Choices& choices) { return layout_bound(choices).step_s; }

  // Plans with equal keys reduce equal buckets: their Programs differ in nothing but the number in
  // `bucket_bytes`.
  std::uint64_t buckets_key(const Choices& choices);
  // Where devices are different: how much of the batch each replica (dp coordinate) takes, and how many
  // layers each stage, so that all are done at about the same time (load_balancing.h), by what their devices
  // compute and what their tensor, context and expert groups take. Empty where an even division is that, or
  // none can be had. Both heed the other as it stands in `choices`.
  std::vector<std::int64_t> shares_by_speed(const Choices& choices);
  std::vector<int> cut_by_speed(const Choices& choices);
  // What each layer takes of one micro-batch there and back, by the recomputation of `choices` and whatever
  // their cut, on the first stage's devices; embedding counted with the first, head with the last.
  std::vector<double> layer_seconds(const Choices& choices);
  // Of the parts (layer_kinds.h) that stage `stage` holds, one micro-batch: seconds that its devices compute.
  double stage_compute_s(const Choices& choices, int stage);

 private:
  Bound corrected(const Bound& bound, const Choices& choices);

  std::unique_ptr<StepModel> model_;
  StepCorrection correction_;
};

}  // namespace orrery::planner
