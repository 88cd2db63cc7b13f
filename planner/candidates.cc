#include "planner/candidates.h"

#include <fmt/format.h>

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
    for (const Choices& choices : enumerate(job, pins).plans) {
      const Memory memory = model.predict(choices);
      if (memory.fits() && (!best || memory.total < best->second.total)) best = {choices, memory};
    }
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

Candidates gather(const std::shared_ptr<const Job>& job, const Pins& pins, Estimator& estimator) {
  Candidates result;
  MemoryModel memory_model(job);
  double least_short = 0;
  for (Choices& choices : enumerate(job, pins).plans) {
    ++result.count;
    const Memory memory = memory_model.predict(choices);
    if (memory.fits()) {
      result.fitting.push_back({choices, memory.total, estimator.times(choices)});
      continue;
    }
    const double missing = memory.total - memory.capacity;
    if (!result.smallest || missing < least_short) {
      least_short = missing;
      result.smallest = Candidate{choices, memory.total, {}};
      result.smallest_memory = memory;
    }
    if (memory.total <= memory.capacity * (1 + kMoreMemory)) {
      Candidate candidate{choices, memory.total, estimator.times(choices)};
      if (!result.nearly || candidate.times.estimate_s < result.nearly->times.estimate_s)
        result.nearly = std::move(candidate);
    }
  }
  return result;
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
