#include "planner/search/cut_refinement.h"

#include <algorithm>

#include "planner/closed_form/memory_model.h"
#include "planner/search/agenda.h"
#include "planner/tables/layer_kinds.h"

namespace orrery::planner {
namespace {

// Choices whose cuts are looked into, how far their expectation may be from the best's, and cuts of each
// whose slots are summed.
constexpr std::size_t kRefined = 32;
constexpr double kRefinedNear = 1.2;
constexpr int kLooks = 400;

// A move is good that gains more than rounding, and a cut is worth looking at where all moves gain so much:
// below, the closed form knows no better.
constexpr double kGain = 1e-6;

class CutRefinement {
 public:
  CutRefinement(const std::shared_ptr<const Job>& job, Objective objective, const Room& room,
                Estimator& estimator)
      : job_(job),
        objective_(objective),
        room_(room),
        estimator_(estimator),
        memory_model_(job),
        layers_alike_(layer_parts(job->workload).layers_alike()) {}

  bool may_be_cut_otherwise(const Choices& c) const {
    return c.pp > 1 && (c.interleave == 1 || !layers_alike_);
  }

  // Whether a better cut was found.
  bool refine(Candidate* best) {
    std::vector<int> layers = layers_by_part({job_, best->choices});
    const int parts = static_cast<int>(layers.size());
    left_ = kLooks;
    bool found = false;
    // Round and round until no move is left that was not tried since the last good one.
    int idle = 0;
    for (int move = 0; idle < parts * parts && left_ > 0; move = (move + 1) % (parts * parts)) {
      const int from = move / parts, to = move % parts;
      ++idle;
      if (from == to || layers[from] <= least_layers(from, parts) || !looked_at(from, to, parts)) continue;
      --layers[from];
      ++layers[to];
      if (better(layers, best)) {
        found = true;
        idle = 0;
        continue;
      }
      ++layers[from];
      --layers[to];
    }
    return found;
  }

 private:
  static bool is_end(int part, int parts) { return part == 0 || part == parts - 1; }
  // The ends have the embedding and the head.
  static int least_layers(int part, int parts) { return is_end(part, parts) ? 0 : 1; }
  static bool looked_at(int from, int to, int parts) {
    return parts <= kAllMoves || std::abs(from - to) == 1 || is_end(from, parts) || is_end(to, parts);
  }

  double value(double step_s, double compute_s, double memory_bytes) const {
    return objective_value(objective_, *job_, step_s, compute_s, memory_bytes);
  }

  // Then *best is the plan with these layers.
  bool better(const std::vector<int>& layers, Candidate* best) {
    Candidate one;
    one.choices = best->choices;
    one.choices.stage_layers = layers;
    const double limit = best->expected * (1 - kGain);
    // Cheapest first: most moves make the slowest stage slower, and are refused by the bound of the layout.
    const Bound of_layout = estimator_.layout_bound(one.choices);
    if (value(of_layout.step_s, of_layout.compute_s, 0) >= limit) return false;
    --left_;
    const Bound bound = estimator_.lower_bound(one.choices);
    if (value(bound.step_s, bound.compute_s, 0) >= limit) return false;
    one.times = estimator_.times(one.choices, bound);
    if (value(one.times.estimate_s, one.times.compute_s, 0) >= limit) return false;
    const Memory memory = memory_model_.predict(one.choices);
    if (!room_.holds(memory)) return false;
    one.memory_bytes = memory.total;
    one.expected = value(one.times.estimate_s, one.times.compute_s, one.memory_bytes);
    one.bound = value(bound.step_s, bound.compute_s, one.memory_bytes);
    *best = std::move(one);
    return true;
  }

  const std::shared_ptr<const Job>& job_;
  Objective objective_;
  const Room& room_;
  Estimator& estimator_;
  MemoryModel memory_model_;
  bool layers_alike_ = false;
  int left_ = 0;  // looks
};

}  // namespace

void refine_cuts(const std::shared_ptr<const Job>& job, Objective objective, const Room& room,
                 Estimator& estimator, Candidates* candidates) {
  if (!job->workload.transformer || candidates->promising.empty()) return;
  CutRefinement refinement(job, objective, room, estimator);
  std::vector<const Candidate*> first;  // of its choice
  const double reach = kRefinedNear * candidates->promising.front().expected;
  for (const Candidate& candidate : candidates->promising) {
    if (first.size() >= kRefined || candidate.expected > reach) break;
    if (std::none_of(first.begin(), first.end(),
                     [&](const Candidate* other) { return same_choice(candidate.choices, other->choices); }))
      first.push_back(&candidate);
  }
  std::vector<Candidate> found;
  for (const Candidate* candidate : first) {
    if (!refinement.may_be_cut_otherwise(candidate->choices)) continue;
    Candidate best = *candidate;
    if (!refinement.refine(&best) || best.expected > candidate->expected * (1 - kCutWorth)) continue;
    const auto& known = candidates->promising;
    if (std::none_of(known.begin(), known.end(),
                     [&](const Candidate& other) { return other.choices == best.choices; }))
      found.push_back(std::move(best));
  }
  const auto count = static_cast<std::int64_t>(found.size());
  candidates->count += count;
  candidates->feasible += count;
  auto& all = candidates->promising;
  all.insert(all.end(), std::make_move_iterator(found.begin()), std::make_move_iterator(found.end()));
  std::stable_sort(all.begin(), all.end(),
                   [](const Candidate& a, const Candidate& b) { return a.expected < b.expected; });
}

}  // namespace orrery::planner
