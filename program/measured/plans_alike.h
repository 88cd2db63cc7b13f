// Plans whose steps were measured on a cluster, and what they say of others: whatever no mechanism explains
// of a step, plans that are alike share (docs/measurements.md, "Plans alike").
//
// It is a random field over plans: of one standard deviation everywhere, with a correlation that falls with
// each doubling in which two plans differ. The measured plans' values are made of independent parts, by the
// Cholesky factor of their correlations; another plan's value is a sum of the same parts and a rest of its
// own.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "program/plan.h"

namespace orrery {

// What tells plans from one another here. How many devices and replicas there are is none of it: what steps
// of few devices show is there on many (the open tables say so), and collectives have factors. Nor is what
// bounds of whole families of plans leave open: how states are sharded, what is computed again.
MeasuredPlan as_measured(const Job& job, const Choices& choices);
// From 0 to 1: equal.
double correlation(const MeasuredPlan& a, const MeasuredPlan& b);
// Less is not alike: nothing is said then.
inline constexpr double kLeastAlike = 0.4;

class PlansAlike {
 public:
  PlansAlike() = default;
  explicit PlansAlike(std::vector<MeasuredPlan> plans);
  // Those of `all` that say most of all of them, at most so many; alike ones stand for each other.
  static std::vector<MeasuredPlan> chosen_from(const std::vector<MeasuredPlan>& all, std::size_t most);

  const std::vector<MeasuredPlan>& plans() const { return plans_; }
  // How much of each independent part a plan has, in units of the field's deviation; empty where no measured
  // plan is alike. The squares add up to at most 1.
  std::vector<double> parts_of(const MeasuredPlan& plan) const;
  // Measured steps of plans alike.
  int steps_alike(const MeasuredPlan& plan) const;

 private:
  void add(const MeasuredPlan& plan);
  std::vector<double> solved(const MeasuredPlan& plan) const;

  std::vector<MeasuredPlan> plans_;
  std::vector<double> triangle_;  // lower, row by row
};

// Those of the job's cluster, of the software that was measured there; of other software none.
PlansAlike measured_plans(const Job& job);

// Of the rest, the share of the variance that `parts` leave.
double left_by(const std::vector<double>& parts);

// What a cluster's calibration says of the steps of plans on it, beyond the mechanisms: of the software that
// was measured there.
class StepCorrection {
 public:
  explicit StepCorrection(std::shared_ptr<const Job> job);

  bool any() const { return !alike_.plans().empty(); }
  // The factor on the step's time: 1 where no plan alike was measured. Cheap where neighbours in a search ask
  // one behind the other.
  double times(const Choices& choices);
  int steps_alike(const Choices& choices) const;  // measured

 private:
  std::shared_ptr<const Job> job_;
  PlansAlike alike_;
  Choices last_;
  double last_times_ = 0;  // nobody has asked
};

// The plan's factor, and of how many measured steps alike.
struct CorrectedBy {
  double times = 1;
  int steps = 0;
};
CorrectedBy corrected_by(const Plan& plan);

}  // namespace orrery
