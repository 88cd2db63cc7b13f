// What a search simulates next: the candidates in the order of what they are expected to come to, corrected
// by what was simulated of their like.
#pragma once

#include <algorithm>
#include <functional>
#include <vector>

#include "planner/closed_form/slot_ends.h"
#include "planner/search/candidates.h"

namespace orrery::planner {

// Alike in all that moves a step by much: of such plans an answer lists the best alone. They may differ in
// buckets, overlap of the reduction, order on the machine, cut, or how many layers are recomputed.
bool same_choice(const Choices& a, const Choices& b);

// What is equal but for rounding has one grain: a billionth of itself.
double grain_of(double value);

class Agenda {
 public:
  struct Open {
    const Candidate* candidate = nullptr;
    bool leader = false;      // the most promising of its choice
    bool cut_leader = false;  // near the best and the most promising of its choice with its cut
    bool compared = false;    // a leader near the best: its response to what is not known counts
    double factor = 1;        // of that: on its expectation, in the mean
    double correction = 1;    // what was simulated of its like, beside what was expected of that
    double likeness = -1;     // of the plan that says so
    bool simulated = false;
    double bound = 0;    // no simulation finds less
    bool tight = false;  // by Agenda::tighten
    // What the slots of its schedule show beyond the bound by sums is beyond the estimate by sums, too.
    double nominal() const {
      if (estimate_lays_slots(candidate->choices.schedule)) return std::max(candidate->expected, bound);
      return candidate->expected + bound - candidate->bound;
    }
    double expected() const { return nominal() * factor * correction; }
    // Seconds of its step, corrected alike.
    double estimate_s() const {
      const double raised = candidate->expected > 0 ? nominal() / candidate->expected : 1;
      return candidate->times.estimate_s * raised * correction;
    }
  };

  // `mean_factor`: of a plan's step beside its estimate, first asked of the plan that the closed form puts
  // first; or nothing. `slot_bound`: a dearer bound of a candidate, asked for where it may tell something.
  Agenda(const Candidates& candidates, const std::function<double(const Choices&)>& mean_factor,
         std::function<double(const Candidate&)> slot_bound);

  // At most `most` to be simulated together: the first batch has plans of different kinds, among them the one
  // with the least estimate. Empty when none is left that `hopeless` does not refuse.
  std::vector<Open*> batch(std::size_t most, const std::function<bool(Open*)>& hopeless);
  // At most `most` of what is expected to take least, each of a choice that is neither `known` nor another's.
  std::vector<Open*> other_choices(std::size_t most, std::vector<Choices> known);
  // Its objective's value as simulated.
  void simulated(Open* open, double value);

  // Open ones of least bounds, at most `most`, none whose bound is `limit` or more.
  std::vector<Open*> least_bounds(std::size_t most, double limit);
  // Raises its bound if that is not known to the last.
  void tighten(Open* open) const;
  // Least bound of what is open or was never kept.
  double least_open_bound();
  const std::vector<Open>& all() const { return all_; }

 private:
  std::vector<Open*> in_order();
  void find_cut_leaders();

  const Candidates& candidates_;
  std::function<double(const Candidate&)> slot_bound_;
  std::vector<Open> all_;  // by rising expectation of the closed form
  bool begun_ = false;
};

}  // namespace orrery::planner
