#include "planner/candidates.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <queue>
#include <tuple>

#include "base/error.h"
#include "base/format.h"
#include "planner/memory_model.h"

namespace orrery::planner {
namespace {

// Clusters of up to this many times the nodes are tried where nothing fits.
constexpr int kMostTimesNodes = 1024;

// The first plan of the space that fits, with least memory; empty where none does.
std::optional<std::pair<Choices, Memory>> roomiest(const std::shared_ptr<const Job>& job, const Pins& pins) {
  std::optional<std::pair<Choices, Memory>> best;
  try {
    MemoryModel model(job);
    for_each_plan(job, pins, [&](const Choices& choices) {
      const Memory memory = model.predict(choices);
      if (memory.fits() && (!best || memory.total < best->second.total)) best = {choices, memory};
    });
  } catch (const UserError&) {
    // The change makes the question nonsensical (a batch that does not divide, a mixed cluster): not an
    // answer.
  }
  return best;
}

std::string with_plan(const std::shared_ptr<const Job>& job, const std::pair<Choices, Memory>& found) {
  return fmt::format("{} then takes {}", describe(Plan{job, found.first}), human_bytes(found.second.total));
}

}  // namespace

namespace {

class Gathering {
 public:
  Gathering(const std::shared_ptr<const Job>& job, Objective objective, int kept, Estimator& estimator)
      : job_(job), objective_(objective), kept_(kept), estimator_(estimator), memory_model_(job) {
    result_.cut_bound = std::numeric_limits<double>::infinity();
  }

  void add(Family&& family) {
    result_.count += family.count();
    // The first of the recomputations computes least: whatever the lists, no plan of the family is faster.
    const double bound = value(estimator_.layout_bound_s(family.core), 0, 0);
    order_.push_back({bound, static_cast<std::int32_t>(families_.size())});
    families_.push_back(std::move(family));
  }

  // Best first: once a family's bound is beyond the threshold, so are all that follow.
  Candidates finish() {
    std::stable_sort(order_.begin(), order_.end(),
                     [](const Ordered& a, const Ordered& b) { return a.bound < b.bound; });
    for (std::size_t i = 0; i < order_.size(); ++i) {
      if (order_[i].bound > threshold()) {
        result_.cut_bound = std::min(result_.cut_bound, order_[i].bound);
        for (; i < order_.size(); ++i) result_.cut += families_[order_[i].family].count();
        break;
      }
      look_into(order_[i].family);
    }
    take_worth();
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

  double value(double step_s, double compute_s, double memory_bytes) const {
    return objective_value(objective_, *job_, step_s, compute_s, memory_bytes);
  }

  // Small spaces are looked at whole: there the search goes on until it is exhaustive.
  double threshold() const {
    return result_.count <= static_cast<std::int64_t>(kWorth) ||
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
      const bool timed = objective_ != Objective::memory;
      const double layout_bound = timed ? value(estimator_.layout_bound_s(choices_), 0, 0) : 0;
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
        if (!memory.fits()) {
          result_.unfit += leaves;
          too_large(memory);
          continue;
        }
        result_.feasible += leaves;
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
    const double bound_s = estimator_.lower_bound_s(choices_);
    // The devices compute for at most as long as the bound says the step lasts, and cost at least nothing:
    // with no compute the value is a bound of the objective's.
    leaf.bound = value(bound_s, 0, leaf.memory_bytes);
    if (leaf.bound > threshold()) {
      result_.cut_bound = std::min(result_.cut_bound, leaf.bound);
      return;
    }
    leaf.times = estimator_.times(choices_);
    leaf.expected = value(leaf.times.estimate_s, leaf.times.compute_s, leaf.memory_bytes);
    leaf.bound = value(leaf.times.lower_bound_s, 0, leaf.memory_bytes);
    best_.push(leaf.expected);
    if (best_.size() > static_cast<std::size_t>(kept_)) best_.pop();
    leaves_.push_back(leaf);
    if (leaves_.size() >= 4 * kWorth) prune();
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
    if (leaves_.size() <= kWorth) return;
    std::nth_element(leaves_.begin(), leaves_.begin() + kWorth, leaves_.end(), before);
    for (std::size_t i = kWorth; i < leaves_.size(); ++i)
      result_.cut_bound = std::min(result_.cut_bound, leaves_[i].bound);
    leaves_.resize(kWorth);
  }

  void take_worth() {
    prune();
    std::sort(leaves_.begin(), leaves_.end(), before);
    const double limit = threshold();
    for (const Leaf& leaf : leaves_) {
      if (leaf.bound > limit) {
        result_.cut_bound = std::min(result_.cut_bound, leaf.bound);
        continue;
      }
      const Family& family = families_[leaf.family];
      result_.worth.push_back(
          {family.plan((*family.recomputes)[leaf.recomputed], (*family.shardings)[leaf.sharding],
                       (*family.overlaps)[leaf.overlap], (*family.buckets)[leaf.bucket].bytes),
           leaf.memory_bytes, leaf.times, leaf.expected, leaf.bound});
    }
  }

  void too_large(const Memory& memory) {
    const double missing = memory.total - memory.capacity;
    if (!result_.smallest || missing < least_short_) {
      least_short_ = missing;
      result_.smallest = Candidate{choices_, memory.total, {}, 0, 0};
      result_.smallest_memory = memory;
    }
    if (memory.total > memory.capacity * (1 + kMoreMemory)) return;
    if (result_.nearly && estimator_.lower_bound_s(choices_) >= result_.nearly->times.estimate_s) return;
    Candidate candidate{choices_, memory.total, estimator_.times(choices_), 0, 0};
    if (!result_.nearly || candidate.times.estimate_s < result_.nearly->times.estimate_s)
      result_.nearly = std::move(candidate);
  }

  std::shared_ptr<const Job> job_;
  Objective objective_;
  int kept_;
  Estimator& estimator_;
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
                  Estimator& estimator) {
  Gathering gathering(job, objective, kept, estimator);
  for_each_family(job, pins, [&](Family&& family) { gathering.add(std::move(family)); });
  return gathering.finish();
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

std::string nothing_fits(const std::shared_ptr<const Job>& job, const Pins& pins,
                         const Candidates& candidates) {
  const Memory& memory = candidates.smallest_memory;
  std::string text = fmt::format(
      "none of {} plans fits in memory: the smallest, {}, needs {} on the devices of stage {}, {} more "
      "than their {}",
      candidates.count, describe(Plan{job, candidates.smallest->choices}), human_bytes(memory.total),
      memory.stage, human_bytes(memory.total - memory.capacity), human_bytes(memory.capacity));
  std::vector<std::string> changes;
  const auto try_without = [&](const char* name, const auto& unpin) {
    Pins free = pins;
    unpin(free);
    if (const auto found = roomiest(job, free))
      changes.push_back(fmt::format("without {} it fits ({})", name, with_plan(job, *found)));
  };
  if (pins.recompute) {
    try_without("--recompute", [](Pins& p) {
      p.recompute.reset();
      p.recompute_layers.reset();
    });
  }
  if (pins.micro_batch) try_without("--micro-batch", [](Pins& p) { p.micro_batch.reset(); });
  if (pins.zero) try_without("--zero", [](Pins& p) { p.zero.reset(); });
  if (pins.sequence_parallel)
    try_without("--sequence-parallel", [](Pins& p) { p.sequence_parallel.reset(); });
  if (pins.schedule || pins.interleave) {
    try_without("--schedule", [](Pins& p) {
      p.schedule.reset();
      p.interleave.reset();
    });
  }
  if (pins.tp || pins.pp || pins.dp || pins.cp || pins.ep) {
    try_without("--tp, --pp, --dp, --cp and --ep", [](Pins& p) {
      p.tp.reset();
      p.pp.reset();
      p.dp.reset();
      p.cp.reset();
      p.ep.reset();
      p.stage_layers.reset();
    });
  }
  if (changes.empty() && job->cluster.fabric.transport != Transport::host) {
    Pins free = pins;
    free.dp.reset();
    const int nodes = job->cluster.nodes();
    for (int times = 2; times <= kMostTimesNodes; times *= 2) {
      try {
        auto larger = std::make_shared<Job>(*job);
        larger->cluster = with_nodes(larger->cluster, nodes * times);
        if (const auto found = roomiest(larger, free)) {
          changes.push_back(fmt::format("with {} nodes ({} devices) it fits ({})", nodes * times,
                                        larger->cluster.devices(), with_plan(larger, *found)));
          break;
        }
      } catch (const UserError&) {
        break;  // several node types: no one way to grow
      }
    }
  }
  if (changes.empty() && job->training.seq_len > 1) {
    for (int seq_len = job->training.seq_len / 2; seq_len >= 128; seq_len /= 2) {
      auto shorter = std::make_shared<Job>(*job);
      shorter->training.seq_len = seq_len;
      if (const auto found = roomiest(shorter, pins)) {
        changes.push_back(
            fmt::format("with sequences of {} tokens it fits ({})", seq_len, with_plan(shorter, *found)));
        break;
      }
    }
  }
  if (changes.empty())
    return text + "; no change of a pin, of the number of nodes or of the sequence length helps";
  for (const std::string& change : changes) text += "; " + change;
  return text;
}

}  // namespace orrery::planner
