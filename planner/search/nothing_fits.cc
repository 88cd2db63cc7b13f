// Why no plan fits in memory, and the nearest change of the question that has an answer.
#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "base/error.h"
#include "base/format.h"
#include "planner/closed_form/memory_model.h"
#include "planner/search/candidates.h"

namespace orrery::planner {
namespace {

// Clusters of up to this many times the nodes are tried.
constexpr int kMostTimesNodes = 1024;

constexpr int kLeastTokens = 128;  // of the sequences that are tried

using JobPtr = std::shared_ptr<const Job>;

// The plan that takes least memory, in words; empty where none fits.
std::string roomiest(const JobPtr& job, const Pins& pins) {
  std::optional<std::pair<Choices, double>> best;
  try {
    MemoryModel model(job);
    for_each_plan(job, pins, [&](const Choices& choices) {
      const Memory memory = model.predict(choices);
      if (memory.fits() && (!best || memory.total < best->second)) best = {choices, memory.total};
    });
  } catch (const UserError&) {
    // The change makes the question nonsensical (a batch that does not divide, a mixed cluster): not an
    // answer.
  }
  if (!best) return {};
  return fmt::format("({} then takes {})", describe(Plan{job, best->first}), human_bytes(best->second));
}

void unpin_recomputation(Pins& pins) {
  pins.recompute.reset();
  pins.recompute_layers.reset();
}

void unpin_schedule(Pins& pins) {
  pins.schedule.reset();
  pins.interleave.reset();
}

void unpin_layout(Pins& pins) {
  for (std::optional<int>* pin : {&pins.tp, &pins.pp, &pins.dp, &pins.cp, &pins.ep}) pin->reset();
  pins.stage_layers.reset();
}

// Pins that alone stand in the way.
std::vector<std::string> without_a_pin(const JobPtr& job, const Pins& pins) {
  struct Change {
    const char* name;
    bool pinned;
    std::function<void(Pins&)> unpin;
  };
  const std::vector<Change> changes = {
      {"`recompute`", pins.recompute.has_value(), unpin_recomputation},
      {"`micro_batch`", pins.micro_batch.has_value(), [](Pins& p) { p.micro_batch.reset(); }},
      {"`zero`", pins.zero.has_value(), [](Pins& p) { p.zero.reset(); }},
      {"`sequence_parallel`", pins.sequence_parallel.has_value(),
       [](Pins& p) { p.sequence_parallel.reset(); }},
      {"`schedule`", pins.schedule || pins.interleave, unpin_schedule},
      {"`tp`, `pp`, `dp`, `cp` and `ep`", pins.tp || pins.pp || pins.dp || pins.cp || pins.ep, unpin_layout},
  };
  std::vector<std::string> found;
  for (const Change& change : changes) {
    if (!change.pinned) continue;
    Pins free = pins;
    change.unpin(free);
    if (const std::string plan = roomiest(job, free); !plan.empty())
      found.push_back(fmt::format("without {} it fits {}", change.name, plan));
  }
  return found;
}

std::string with_nodes_as_many(const JobPtr& job, const Pins& pins, int nodes) {
  auto larger = std::make_shared<Job>(*job);
  larger->cluster = with_nodes(larger->cluster, nodes);
  const std::string plan = roomiest(larger, pins);
  return plan.empty()
             ? plan
             : fmt::format("with {} nodes ({} devices) it fits {}", nodes, larger->cluster.devices(), plan);
}

// Twice the nodes, four times, …; then the quarters between the first that do and the last that did not.
std::string with_more_nodes(const JobPtr& job, const Pins& pins) {
  if (job->cluster.fabric.transport == Transport::host) return {};
  Pins free = pins;
  free.dp.reset();
  const int nodes = job->cluster.nodes();
  try {
    for (int times = 2; times <= kMostTimesNodes; times *= 2) {
      std::string enough = with_nodes_as_many(job, free, nodes * times);
      if (enough.empty()) continue;
      const int few = nodes * times / 2;
      for (int quarters = 5; quarters < 8; ++quarters) {
        if (few * quarters % 4 != 0) continue;
        std::string fewer = with_nodes_as_many(job, free, few * quarters / 4);
        if (!fewer.empty()) return fewer;
      }
      return enough;
    }
  } catch (const UserError&) {
    // Several node types: there is no one way to grow.
  }
  return {};
}

std::string with_shorter_sequences(const JobPtr& job, const Pins& pins) {
  for (int seq_len = job->training.seq_len / 2; seq_len >= kLeastTokens; seq_len /= 2) {
    auto shorter = std::make_shared<Job>(*job);
    shorter->training.seq_len = seq_len;
    if (const std::string plan = roomiest(shorter, pins); !plan.empty())
      return fmt::format("with sequences of {} tokens it fits {}", seq_len, plan);
  }
  return {};
}

}  // namespace

std::string nothing_fits(const JobPtr& job, const Pins& pins, const Candidates& candidates) {
  const Memory& memory = candidates.smallest_memory;
  std::string text = fmt::format(
      "none of {} plans fits in memory: the smallest, {}, needs {} on the devices of stage {}, {} more "
      "than their {}",
      candidates.count, describe(Plan{job, candidates.smallest->choices}), human_bytes(memory.total),
      memory.stage, human_bytes(memory.total - memory.capacity), human_bytes(memory.capacity));
  std::vector<std::string> changes = without_a_pin(job, pins);
  for (const auto change : {with_more_nodes, with_shorter_sequences}) {
    if (!changes.empty()) break;
    if (std::string found = change(job, pins); !found.empty()) changes.push_back(std::move(found));
  }
  if (changes.empty())
    return text + "; no change of a pin, of the number of nodes or of the sequence length helps";
  for (const std::string& change : changes) text += "; " + change;
  return text;
}

}  // namespace orrery::planner
