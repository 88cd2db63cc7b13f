// The plans of a space with their cheap figures: memory, closed form, lower bound.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "planner/estimator.h"
#include "planner/evaluation.h"
#include "planner/search.h"

namespace orrery::planner {

struct Candidate {
  Choices choices;
  double memory_bytes = 0;
  StepTimes times;
  double expected = 0;  // objective by the estimate
  double bound = 0;     // objective by the lower bound
};

struct Candidates {
  std::int64_t count = 0;     // plans with distinct Programs
  std::int64_t feasible = 0;  // that fit in memory
  // Of these, the ones worth ordering: a plan whose bound is kHopeless times the `kept`-th best expectation
  // is cut, with its bound remembered for the gap.
  std::vector<Candidate> worth;
  double cut_bound = 0;               // least bound of those cut; infinite where none was
  std::optional<Candidate> smallest;  // of those that do not fit: the one that is least short
  Memory smallest_memory;
  std::optional<Candidate> nearly;  // the fastest, by its estimate, of those within kMoreMemory of fitting
};
constexpr double kMoreMemory = 0.1;  // the "10% more memory" of the sensitivities

// Throws UserError where for_each_plan does.
Candidates gather(const std::shared_ptr<const Job>& job, const Pins& pins, Objective objective, int kept,
                  Estimator& estimator);

// Why nothing fits, for NoAnswer: what is short, by how much, where, and the nearest change that would fit.
std::string nothing_fits(const std::shared_ptr<const Job>& job, const Pins& pins,
                         const Candidates& candidates);

}  // namespace orrery::planner
