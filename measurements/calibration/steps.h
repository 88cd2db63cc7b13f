// Factors of runtime, device, network and site by steps that were measured on a cluster.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "measurements/calibration/learned.h"
#include "measurements/calibration/posterior.h"
#include "measurements/measurement.h"
#include "planner/uncertainty/factors.h"
#include "program/measured/plans_alike.h"

namespace orrery::measurements {

// A step that was measured, of a job that is as profiles have it.
struct StepRow {
  Plan plan;
  std::string model;  // its effect (planner/uncertainty/site.h)
  double measured_s = 0;
  double widens = 0;  // standard deviation of what was assumed of it
  // How often it was measured, where that is the mean of the logarithms; and the sum of the squares that
  // these lie from it.
  int times = 1;
  double within = 0;
};

// Numbers plans in the order in which they come, the same plan of the same job alike.
class PlansSeen {
 public:
  std::size_t number_of(const Plan& plan);
  std::size_t count() const { return count_; }

 private:
  std::map<const Job*, std::vector<std::pair<Choices, std::size_t>>> plans_;
  std::size_t count_ = 0;
};

// What is thought of steps on a cluster before any is seen: standard deviations of logarithms.
struct StepPrior {
  std::array<double, planner::kFactors> factor{};
  // Of all that runs on one site, and of all steps of a model. More than steps of sources left out of the
  // joint fit leave (0.06, 0.03): those are of the many, one site is what it is.
  double site = 0.15, model = 0.10;
  // Of what plans that are alike share (program/measured/plans_alike.h), and of each row; where nothing was
  // measured, of both together.
  double alike = 0.20, row = 0.05;
  double unmeasured = 0.08;
};

class StepFit {
 public:
  StepFit(std::vector<StepRow> rows, const StepPrior& prior);

  const Posterior& posterior() const { return posterior_; }
  // The factors', the site's, the models', those of plans().
  const std::vector<Effect>& effects() const { return effects_; }
  const std::vector<MeasuredPlan>& plans() const { return alike_.plans(); }
  double own_sd() const;
  double alike_sd() const;
  HeldOut held_out() const;
  HeldOut own() const;  // of the rows that it was fitted to

  struct Prediction {
    double seconds = 0, sd = 0;  // of the logarithm, with its own noise
  };
  // Of another step under the same prior.
  Prediction predict(const StepRow& row) const { return predict_by(posterior_, row); }
  // Likewise as if nothing had been measured.
  Prediction predict_before(const StepRow& row) const;

 private:
  struct Looked {
    double seconds = 0;
    std::vector<double> slopes;
    double own_variance = 0;  // of what no effect explains
  };
  int model_of(const StepRow& row) const;  // its effect; -1: of a model that was not measured
  planner::World world_of(const std::vector<double>& means, int model) const;
  Looked look(const StepRow& row, const std::vector<double>& means) const;
  std::vector<Seen> seen_at(const std::vector<double>& means) const;
  Prediction predict_by(const Posterior& posterior, const StepRow& row) const;

  std::vector<StepRow> rows_;
  StepPrior prior_;
  PlansAlike alike_;
  std::vector<Effect> effects_;
  std::vector<Seen> seen_;
  Posterior posterior_;
};

}  // namespace orrery::measurements
