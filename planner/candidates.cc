#include "planner/candidates.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <queue>

#include "base/error.h"
#include "base/format.h"
#include "planner/memory_model.h"
#include "planner/space.h"

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

// Plans differ from the one before mostly in what memory does not depend on.
bool same_memory(const Choices& a, const Choices& b) {
  return a.tp == b.tp && a.pp == b.pp && a.cp == b.cp && a.ep == b.ep && a.micro_batch == b.micro_batch &&
         a.schedule == b.schedule && a.interleave == b.interleave && a.recompute == b.recompute &&
         a.recompute_layers == b.recompute_layers && a.zero == b.zero &&
         a.sequence_parallel == b.sequence_parallel;
}

class Gathering {
 public:
  Gathering(const std::shared_ptr<const Job>& job, Objective objective, int kept, Estimator& estimator)
      : job_(job), objective_(objective), kept_(kept), estimator_(estimator), memory_model_(job) {
    result_.cut_bound = std::numeric_limits<double>::infinity();
  }

  void visit(const Choices& choices) {
    ++result_.count;
    if (result_.count == 1 || !same_memory(choices, last_)) {
      memory_ = memory_model_.predict(choices);
      last_ = choices;
    }
    if (memory_.fits()) return add_fitting(choices);
    const double missing = memory_.total - memory_.capacity;
    if (!result_.smallest || missing < least_short_) {
      least_short_ = missing;
      result_.smallest = Candidate{choices, memory_.total, {}, 0, 0};
      result_.smallest_memory = memory_;
    }
    if (memory_.total <= memory_.capacity * (1 + kMoreMemory)) add_nearly(choices);
  }

  Candidates finish() {
    std::vector<Candidate>& worth = result_.worth;
    const double limit = threshold();
    for (const Candidate& candidate : worth)
      if (candidate.bound > limit) result_.cut_bound = std::min(result_.cut_bound, candidate.bound);
    worth.erase(std::remove_if(worth.begin(), worth.end(),
                               [&](const Candidate& candidate) { return candidate.bound > limit; }),
                worth.end());
    return std::move(result_);
  }

 private:
  // By how much a bound must exceed the kept-th best expectation to be hopeless: the estimate may be off by
  // less.
  static constexpr double kHopeless = 1.3;

  double value(double step_s, double compute_s) const {
    return objective_value(objective_, *job_, step_s, compute_s, memory_.total);
  }

  double threshold() const {
    return best_.size() < static_cast<std::size_t>(kept_) ? std::numeric_limits<double>::infinity()
                                                          : best_.top() * kHopeless;
  }

  void add_fitting(const Choices& choices) {
    ++result_.feasible;
    const double bound_s = estimator_.lower_bound_s(choices);
    // The devices compute for at most as long as the bound says the step lasts, and cost at least nothing:
    // with no compute the value is a bound of the objective's.
    const double bound = value(bound_s, 0);
    if (bound > threshold()) {
      result_.cut_bound = std::min(result_.cut_bound, bound);
      return;
    }
    Candidate candidate{choices, memory_.total, estimator_.times(choices), 0, 0};
    candidate.expected = value(candidate.times.estimate_s, candidate.times.compute_s);
    candidate.bound = value(candidate.times.lower_bound_s, candidate.times.compute_s);
    best_.push(candidate.expected);
    if (best_.size() > static_cast<std::size_t>(kept_)) best_.pop();
    result_.worth.push_back(std::move(candidate));
  }

  void add_nearly(const Choices& choices) {
    if (result_.nearly && estimator_.lower_bound_s(choices) >= result_.nearly->times.estimate_s) return;
    Candidate candidate{choices, memory_.total, estimator_.times(choices), 0, 0};
    if (!result_.nearly || candidate.times.estimate_s < result_.nearly->times.estimate_s)
      result_.nearly = std::move(candidate);
  }

  std::shared_ptr<const Job> job_;
  Objective objective_;
  int kept_;
  Estimator& estimator_;
  MemoryModel memory_model_;
  Candidates result_;
  Memory memory_;
  Choices last_;
  double least_short_ = 0;
  std::priority_queue<double> best_;  // the kept-th best expectation on top
};

}  // namespace

Candidates gather(const std::shared_ptr<const Job>& job, const Pins& pins, Objective objective, int kept,
                  Estimator& estimator) {
  Gathering gathering(job, objective, kept, estimator);
  for_each_plan(job, pins, [&](const Choices& choices) { gathering.visit(choices); });
  return gathering.finish();
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
