// The nearest plan that people are known to run (planner/search/recipes.textproto), as it would be of a job.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "planner/closed_form/estimator.h"
#include "planner/search/candidates.h"

namespace orrery::planner {

struct RecipePlan {
  std::string name, source;
  Candidate candidate;  // the fastest by its estimate of what the recipe leaves open
  bool fits = false;    // its prediction is within the devices' memory
};

// Of the recipes for models up to twice as large or small, with experts and Mamba layers where the model has
// them, on devices with about as much memory (and of the vendor, where the recipe names one), the nearest
// that the job's devices, layers and batch admit: by size of the model, then length of sequences, devices
// and their memory. Nothing where there is none. What it leaves open is what the runtime can run and fits in
// `fillable` of the capacity, if anything does.
std::optional<RecipePlan> nearest_recipe(const std::shared_ptr<const Job>& job, Estimator& estimator,
                                         double fillable);

}  // namespace orrery::planner
