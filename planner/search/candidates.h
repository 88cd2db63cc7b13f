// The plans of a space with their cheap figures: memory (bytes), closed form and lower bound (s, or as said).
#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "planner/closed_form/estimator.h"
#include "planner/evaluation/evaluation.h"
#include "planner/search/search.h"
#include "planner/space/space.h"
#include "planner/uncertainty/spread.h"

namespace orrery::planner {

struct Candidate {
  Choices choices;
  double memory_bytes = 0;  // of the fullest device
  StepTimes times;          // by the closed form
  double expected = 0;      // the objective by the estimate: s, USD, J or bytes (objective_value)
  double bound = 0;         // the same by the lower bound: no simulation finds less
};

// What candidates are expected to take, bounded by and ranked by: the memory objective is a limit (Room).
inline Objective ranked_by(Objective objective) {
  return objective == Objective::memory ? Objective::step_time : objective;
}

// What a plan's fullest device may hold.
struct Room {
  double fillable = 1;  // share of its capacity that the plan may be predicted to fill
  double bytes = std::numeric_limits<double>::infinity();  // in all, whatever the capacity
  bool holds(const Memory& memory) const { return memory.fits(fillable) && memory.total <= bytes; }
};

struct Candidates {
  std::int64_t count = 0;     // plans with distinct Programs
  std::int64_t cut = 0;       // of these, never looked at one by one: their bound is above the threshold
  std::int64_t unfit = 0;     // that do not fit in memory
  std::int64_t feasible = 0;  // that fit, and whose time was estimated or bounded
  // Of these, at most kMostPromising: those that may be among the best `kept` (of gather) once simulated. A
  // plan whose bound is above kHopeless (candidates.cc) times the `kept`-th least expectation is not.
  std::vector<Candidate> promising;
  std::int64_t tight = 0;  // of those that do not fit: that would if all of the capacity might be filled
  double cut_bound = 0;    // least bound of all fitting plans that are not in `promising`
  std::optional<Candidate> smallest;  // of those that do not fit: the one that is least short
  Memory smallest_memory;
  std::optional<Candidate> almost_fits;  // with kMoreMemory more memory: the fastest of these by its estimate
  // Of those that do not fit with the wanted probability, but are predicted to fit: likewise.
  std::optional<Candidate> unsure;
  std::optional<Candidate> larger;  // of those that fit, but have more than Room::bytes: likewise
};
constexpr std::size_t kMostPromising = 4096;
constexpr double kMoreMemory = 0.1;        // the "10% more memory" of the sensitivities
constexpr double kNearLeastMemory = 0.02;  // above the least: about as likely to fit

// Throws UserError where for_each_plan does.
Candidates gather(const std::shared_ptr<const Job>& job, const Pins& pins, Objective objective, int kept,
                  Estimator& estimator, const Room& room = {}, const SearchProgress& progress = {});

struct Fitting {
  Candidates candidates;
  Room room;  // that they were gathered with
};
// Those that fit with `fit_probability`; where no plan does, those that are about as likely to as the
// likeliest (kNearLeastMemory). For the memory objective those with at most kMemoryMargin more than the
// least, with their step time as what is expected and bounded. Throws NoAnswer where none is predicted to
// fit.
Fitting gather_fitting(const std::shared_ptr<const Job>& job, const Pins& pins, Objective objective, int kept,
                       Estimator& estimator, const Spread& spread, double fit_probability,
                       const SearchProgress& progress = {});

struct BoundedFamily {
  double bound_s = 0;  // of its fastest plan, data parallelism aside
  Family family;
};
// The families whose cores are `wanted`, those with the least bounds first, else in the order of the space.
// Throws UserError where for_each_family does.
std::vector<BoundedFamily> families_by_bound(const std::shared_ptr<const Job>& job, const Pins& pins,
                                             Estimator& estimator,
                                             const std::function<bool(const Choices&)>& wanted);

// Why nothing fits, for NoAnswer: what is short, by how much, where, and the nearest change that would fit
// with `fit_probability`, or how likely it would.
std::string nothing_fits(const std::shared_ptr<const Job>& job, const Pins& pins,
                         const Candidates& candidates, double fit_probability);

}  // namespace orrery::planner
