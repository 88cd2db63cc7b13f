#include "planner/search/candidates.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <tuple>

#include "base/error.h"
#include "planner/closed_form/memory_model.h"
#include "planner/search/cut_refinement.h"
#include "planner/uncertainty/outlook.h"

namespace orrery::planner {
namespace {

class Gathering {
 public:
  Gathering(const std::shared_ptr<const Job>& job, Objective objective, int kept, Estimator& estimator,
            const Room& room, const SearchProgress& progress)
      : job_(job),
        objective_(objective),
        kept_(kept),
        estimator_(estimator),
        room_(room),
        progress_(progress),
        memory_model_(job) {
    result_.cut_bound = std::numeric_limits<double>::infinity();
  }

  void add(Family&& family) {
    result_.count += family.count();
    // The first of the recomputations computes least: whatever the lists, no plan of the family is faster.
    const double bound = layout_value(family.core);
    order_.push_back({bound, static_cast<std::int32_t>(families_.size())});
    families_.push_back(std::move(family));
  }

  // Best first: once a family's bound is beyond the threshold, so are all that follow.
  Candidates finish() {
    std::stable_sort(order_.begin(), order_.end(),
                     [](const Ordered& a, const Ordered& b) { return a.bound < b.bound; });
    for (std::size_t i = 0; i < order_.size(); ++i) {
      if (progress_ && i % kFamiliesTold == 0)
        progress_("looking at plans", static_cast<int>(i), static_cast<int>(order_.size()));
      if (order_[i].bound > threshold()) {
        result_.cut_bound = std::min(result_.cut_bound, order_[i].bound);
        for (; i < order_.size(); ++i) result_.cut += families_[order_[i].family].count();
        break;
      }
      look_into(order_[i].family);
    }
    take_promising();
    return std::move(result_);
  }

 private:
  struct Ordered {
    double bound = 0;
    std::int32_t family = 0;
  };
  // A plan of a family, by its places in the lists.
  struct Leaf {
    std::int32_t family = 0;
    std::int16_t recomputed = 0, sharding = 0, overlap = 0, bucket = 0;
    double memory_bytes = 0;
    StepTimes times;
    double expected = 0, bound = 0;
  };

  // By how much a bound must exceed the kept-th best expectation to be hopeless: what the estimate may be off
  // by. What is cut is remembered with its bound, so the answer's gap holds whatever this is.
  static constexpr double kHopeless = 1.05;

  static constexpr std::size_t kFamiliesTold = 16;  // of which progress is told

  double value(double step_s, double compute_s, double memory_bytes) const {
    return objective_value(objective_, *job_, step_s, compute_s, memory_bytes);
  }

  // A bound of all plans that differ in what concerns data parallelism only.
  double layout_value(const Choices& choices) {
    const Bound bound = estimator_.layout_bound(choices);
    return value(bound.step_s, bound.compute_s, 0);
  }

  // Small spaces are looked at whole: there the search goes on until it is exhaustive.
  double threshold() const {
    return result_.count <= static_cast<std::int64_t>(kMostPromising) ||
                   best_.size() < static_cast<std::size_t>(kept_)
               ? std::numeric_limits<double>::infinity()
               : best_.top() * kHopeless;
  }

  void look_into(std::int32_t index) {
    const Family& family = families_[index];
    const auto shardings = static_cast<int>(family.shardings->size());
    choices_ = family.core;
    for (int r = 0; r < static_cast<int>(family.recomputes->size()); ++r) {
      choices_.recompute = (*family.recomputes)[r].kind;
      choices_.recompute_layers = (*family.recomputes)[r].layers;
      choices_.recompute_modules = (*family.recomputes)[r].modules;
      const bool timed = objective_ != Objective::memory;
      const double layout_bound = timed ? layout_value(choices_) : 0;
      if (layout_bound > threshold()) {
        result_.cut += family.count() / static_cast<std::int64_t>(family.recomputes->size());
        result_.cut_bound = std::min(result_.cut_bound, layout_bound);
        continue;
      }
      for (int s = 0; s < shardings; ++s) {
        choices_.zero = (*family.shardings)[s].zero;
        choices_.shard_group = (*family.shardings)[s].group;
        std::int64_t leaves = 0;
        for (std::size_t o = 0; o < family.overlaps->size(); ++o)
          for (std::size_t b = 0; b < family.buckets->size(); ++b)
            if (family.distinct(choices_.zero, o, b)) ++leaves;
        const Memory memory = memory_model_.predict(choices_);
        if (!memory.fits(room_.fillable)) {
          result_.unfit += leaves;
          if (memory.fits()) result_.tight += leaves;
          too_large(memory);
          continue;
        }
        result_.feasible += leaves;
        if (memory.total > room_.bytes) {
          keep_faster(&result_.larger, memory);
          continue;
        }
        if (!timed && memory.total > threshold()) {
          result_.cut_bound = std::min(result_.cut_bound, memory.total);
          continue;
        }
        for (std::size_t o = 0; o < family.overlaps->size(); ++o) {
          choices_.overlap_grad_reduce = (*family.overlaps)[o];
          for (std::size_t b = 0; b < family.buckets->size(); ++b) {
            if (!family.distinct(choices_.zero, o, b)) continue;
            choices_.bucket_bytes = (*family.buckets)[b].bytes;
            add_leaf({index,
                      static_cast<std::int16_t>(r),
                      static_cast<std::int16_t>(s),
                      static_cast<std::int16_t>(o),
                      static_cast<std::int16_t>(b),
                      memory.total,
                      {},
                      0,
                      0});
          }
        }
        choices_.overlap_grad_reduce = family.overlaps->front();
        choices_.bucket_bytes = family.buckets->front().bytes;
      }
    }
  }

  void add_leaf(Leaf&& leaf) {
    const Bound bound = estimator_.lower_bound(choices_);
    leaf.bound = value(bound.step_s, bound.compute_s, leaf.memory_bytes);
    if (leaf.bound > threshold()) {
      result_.cut_bound = std::min(result_.cut_bound, leaf.bound);
      return;
    }
    leaf.times = estimator_.times(choices_, bound);
    leaf.expected = value(leaf.times.estimate_s, leaf.times.compute_s, leaf.memory_bytes);
    best_.push(leaf.expected);
    if (best_.size() > static_cast<std::size_t>(kept_)) best_.pop();
    leaves_.push_back(leaf);
    if (leaves_.size() >= 4 * kMostPromising) prune();
  }

  static bool before(const Leaf& a, const Leaf& b) {
    if (a.expected != b.expected) return a.expected < b.expected;
    if (a.times.estimate_s != b.times.estimate_s) return a.times.estimate_s < b.times.estimate_s;
    if (a.family != b.family) return a.family < b.family;
    return std::tie(a.recomputed, a.sharding, a.overlap, a.bucket) <
           std::tie(b.recomputed, b.sharding, b.overlap, b.bucket);
  }

  // Keeps the most promising.
  void prune() {
    if (leaves_.size() <= kMostPromising) return;
    std::nth_element(leaves_.begin(), leaves_.begin() + kMostPromising, leaves_.end(), before);
    for (std::size_t i = kMostPromising; i < leaves_.size(); ++i)
      result_.cut_bound = std::min(result_.cut_bound, leaves_[i].bound);
    leaves_.resize(kMostPromising);
  }

  void take_promising() {
    prune();
    std::sort(leaves_.begin(), leaves_.end(), before);
    const double limit = threshold();
    for (const Leaf& leaf : leaves_) {
      if (leaf.bound > limit) {
        result_.cut_bound = std::min(result_.cut_bound, leaf.bound);
        continue;
      }
      const Family& family = families_[leaf.family];
      result_.promising.push_back(
          {family.plan((*family.recomputes)[leaf.recomputed], (*family.shardings)[leaf.sharding],
                       (*family.overlaps)[leaf.overlap], (*family.buckets)[leaf.bucket].bytes),
           leaf.memory_bytes, leaf.times, leaf.expected, leaf.bound});
    }
  }

  void too_large(const Memory& memory) {
    const double missing = memory.needed - memory.capacity;
    if (!result_.smallest || missing < least_short_) {
      least_short_ = missing;
      result_.smallest = Candidate{choices_, memory.total, {}, 0, 0};
      result_.smallest_memory = memory;
    }
    // Who wants little memory does not ask what more would do.
    const bool asked = room_.bytes == std::numeric_limits<double>::infinity();
    if (asked && memory.fits()) keep_faster(&result_.unsure, memory);
    if (asked && memory.needed <= memory.capacity * room_.fillable * (1 + kMoreMemory))
      keep_faster(&result_.almost_fits, memory);
  }

  // The plan being looked at, where the closed form says that it is faster than *fastest.
  void keep_faster(std::optional<Candidate>* fastest, const Memory& memory) {
    if (*fastest && estimator_.lower_bound_s(choices_) >= (*fastest)->times.estimate_s) return;
    Candidate candidate{choices_, memory.total, estimator_.times(choices_), 0, 0};
    if (!*fastest || candidate.times.estimate_s < (*fastest)->times.estimate_s)
      *fastest = std::move(candidate);
  }

  std::shared_ptr<const Job> job_;
  Objective objective_;
  int kept_;
  Estimator& estimator_;
  Room room_;
  const SearchProgress& progress_;
  MemoryModel memory_model_;
  Candidates result_;
  std::vector<Family> families_;
  std::vector<Ordered> order_;
  std::vector<Leaf> leaves_;
  Choices choices_;  // of the plan being looked at
  double least_short_ = 0;
  std::priority_queue<double> best_;  // the kept-th best expectation on top
};

}  // namespace

Candidates gather(const std::shared_ptr<const Job>& job, const Pins& pins, Objective objective, int kept,
                  Estimator& estimator, const Room& room, const SearchProgress& progress) {
  Gathering gathering(job, objective, kept, estimator, room, progress);
  if (progress) progress("listing plans", 0, 0);
  for_each_family(job, pins, [&](Family&& family) { gathering.add(std::move(family)); });
  return gathering.finish();
}

Fitting gather_fitting(const std::shared_ptr<const Job>& job, const Pins& pins, Objective objective, int kept,
                       Estimator& estimator, const Spread& spread, double fit_probability,
                       const SearchProgress& progress) {
  Fitting fitting;
  const auto look = [&] {
    fitting.candidates = gather(job, pins, objective, kept, estimator, fitting.room, progress);
    return !fitting.candidates.promising.empty();
  };
  fitting.room.fillable = std::min(1.0, fillable_share(fit_probability, spread));
  if (!look() && fitting.candidates.tight > 0) {
    // None is likely enough: the best of those about as likely as the likeliest.
    const Memory& least = fitting.candidates.smallest_memory;
    fitting.room.fillable = std::min(1.0, least.needed / least.capacity * (1 + kNearLeastMemory));
    look();
  }
  if (fitting.candidates.promising.empty())
    throw NoAnswer(nothing_fits(job, pins, fitting.candidates, fit_probability));
  if (objective == Objective::memory) {
    fitting.room.bytes = fitting.candidates.promising.front().memory_bytes * (1 + kMemoryMargin);
    objective = ranked_by(objective);
    look();
  }
  if (!pins.stage_layers) refine_cuts(job, objective, fitting.room, estimator, &fitting.candidates);
  return fitting;
}

std::vector<BoundedFamily> families_by_bound(const std::shared_ptr<const Job>& job, const Pins& pins,
                                             Estimator& estimator,
                                             const std::function<bool(const Choices&)>& wanted) {
  std::vector<BoundedFamily> families;
  for_each_family(job, pins, [&](Family&& family) {
    if (!wanted(family.core)) return;
    const double bound_s = estimator.layout_bound_s(family.core);
    families.push_back({bound_s, std::move(family)});
  });
  std::stable_sort(families.begin(), families.end(),
                   [](const BoundedFamily& a, const BoundedFamily& b) { return a.bound_s < b.bound_s; });
  return families;
}

}  // namespace orrery::planner
