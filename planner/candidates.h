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
};

struct Candidates {
  std::int64_t count = 0;             // plans with distinct Programs
  std::vector<Candidate> fitting;     // in the order of the space
  std::optional<Candidate> smallest;  // of those that do not fit: the one that is least short
  Memory smallest_memory;
  std::optional<Candidate> nearly;  // the fastest, by its estimate, of those within kMoreMemory of fitting
};
constexpr double kMoreMemory = 0.1;  // the "10% more memory" of the sensitivities

// Throws UserError where enumerate does.
Candidates gather(const std::shared_ptr<const Job>& job, const Pins& pins, Estimator& estimator);

// Why nothing fits, for NoAnswer: what is short, by how much, where, and the nearest change that would fit.
std::string nothing_fits(const std::shared_ptr<const Job>& job, const Pins& pins,
                         const Candidates& candidates);

}  // namespace orrery::planner
