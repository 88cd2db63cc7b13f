// Why no plan fits in memory, and the nearest change of the question that has an answer.
#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "base/error.h"
#include "base/format.h"
#include "planner/closed_form/memory_model.h"
#include "planner/search/candidates.h"
#include "planner/space/offload.h"

namespace orrery::planner {
namespace {

// Clusters of up to this many times the nodes are tried.
constexpr int kMostTimesNodes = 1024;

constexpr int kLeastTokens = 128;  // of the sequences that are tried

using JobPtr = std::shared_ptr<const Job>;

constexpr int kRank = 16;              // of the adapters that are tried
constexpr int kMostEstimated = 2'000;  // fitting plans of a change whose times are estimated

// Memory does not depend on it, or one chunk of a stage takes least: left as the runtime has it.
Pins without_details(Pins pins) {
  if (!pins.bucket_bytes) pins.bucket_bytes = 0;
  if (!pins.overlap_grad_reduce) pins.overlap_grad_reduce = true;
  if (!pins.schedule && !pins.stage_layers && !pins.interleave) pins.interleave = 1;
  return pins;
}

// Whoever asks what fits asks for the smallest micro-batch.
Pins least_memory(const Job& job, const Pins& pins) {
  Pins least = without_details(pins);
  if (job.workload.transformer && !least.micro_batch) least.micro_batch = 1;
  return least;
}

Choices plan_of(const Family& family, const Recomputed& recomputed, const Sharding& sharding) {
  return family.plan(recomputed, sharding, family.overlaps->front(), family.buckets->front().bytes);
}

// The fastest of the plans that fit, by the closed form, with its memory and its step, in words; of a large
// space the fastest of its first. Empty where none fits.
std::string fastest(const JobPtr& job, const Pins& pins) {
  struct Found {
    Choices choices;
    double step_s = 0, bytes = 0;
  };
  std::optional<Found> best;
  try {
    MemoryModel model(job);
    Estimator estimator(job);
    int estimated = 0;
    for_families_until(job, without_details(pins), [&](const Family& family) {
      for (const Sharding& sharding : *family.shardings) {
        // In the order of what they compute: the first that fits is the fastest.
        for (const Recomputed& recomputed : *family.recomputes) {
          const Choices choices = plan_of(family, recomputed, sharding);
          const Memory memory = model.predict(choices);
          if (!memory.fits()) continue;
          ++estimated;
          const double step_s = estimator.times(choices).estimate_s;
          if (!best || step_s < best->step_s) best = {choices, step_s, memory.total};
          break;
        }
      }
      return estimated < kMostEstimated;
    });
  } catch (const UserError&) {
    return {};
  }
  if (!best) return {};
  return fmt::format("{}, {} and {} a step", describe(Plan{job, best->choices}), human_bytes(best->bytes),
                     human_seconds(best->step_s));
}

// Calls `fit` with the plans that may take least memory of their families and fit, until it has seen enough.
void for_small_plans(const JobPtr& job, const Pins& pins,
                     const std::function<bool(const Choices&, const Memory&)>& fit) {
  try {
    MemoryModel model(job);
    for_families_until(job, least_memory(*job, pins), [&](const Family& family) {
      for (const Recomputed& recomputed : *family.recomputes) {
        // Between nothing and everything run again lies what these leave of memory.
        const bool partly = recomputed.kind == Recompute::full && recomputed.layers > 0;
        if (partly && !pins.recompute_layers) continue;
        for (const Sharding& sharding : *family.shardings) {
          if (sharding.group > 0 && !pins.shard_group) continue;
          const Choices choices = plan_of(family, recomputed, sharding);
          const Memory memory = model.predict(choices);
          if (memory.fits() && !fit(choices, memory)) return false;
        }
      }
      return true;
    });
  } catch (const UserError&) {
    // The change makes the question nonsensical (a batch that does not divide, a mixed cluster): not an
    // answer.
  }
}

// The plan that takes least memory, in words; empty where none fits.
std::string roomiest(const JobPtr& job, const Pins& pins) {
  std::optional<std::pair<Choices, double>> best;
  for_small_plans(job, pins, [&](const Choices& choices, const Memory& memory) {
    if (!best || memory.total < best->second) best = {choices, memory.total};
    return true;
  });
  if (!best) return {};
  return fmt::format("{}, {}", describe(Plan{job, best->first}), human_bytes(best->second));
}

bool fits(const JobPtr& job, const Pins& pins) {
  bool found = false;
  for_small_plans(job, pins, [&](const Choices&, const Memory&) {
    found = true;
    return false;
  });
  return found;
}

void unpin_recomputation(Pins& pins) {
  pins.recompute.reset();
  pins.recompute_layers.reset();
  pins.recompute_modules.reset();
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
      found.push_back(fmt::format("It fits without {}: {}", change.name, plan));
  }
  return found;
}

// The job on so many nodes; nothing where it does not fit there.
JobPtr on_nodes(const JobPtr& job, const Pins& pins, int nodes) {
  auto larger = std::make_shared<Job>(*job);
  larger->cluster = with_nodes(larger->cluster, nodes);
  return fits(larger, pins) ? larger : nullptr;
}

// More devices of a node of which some were asked for, up to all of them.
std::string with_more_devices(const JobPtr& job, const Pins& pins) {
  const NodeType& node = job->cluster.groups.front().node;
  if (!node.whole) return {};
  Pins free = pins;
  free.dp.reset();
  for (int devices = node.devices + 1; devices <= node.whole->devices; ++devices) {
    if (devices % node.devices != 0 && devices != node.whole->devices) continue;
    auto larger = std::make_shared<Job>(*job);
    larger->cluster = with_devices(larger->cluster, devices);
    if (fits(larger, free))
      return fmt::format("It fits with {} of the node: {}", counted(devices, "device"),
                         fastest(larger, free));
  }
  return {};
}

// Twice the nodes, four times, …; then the quarters between the first that do and the last that did not.
std::string with_more_nodes(const JobPtr& job, const Pins& pins) {
  if (job->cluster.fabric.transport == Transport::host) return {};
  Pins free = pins;
  free.dp.reset();
  const int nodes = job->cluster.nodes();
  if (const auto whole = job->cluster.groups.front().node.whole) {
    auto all = std::make_shared<Job>(*job);
    all->cluster = with_devices(all->cluster, whole->devices);
    return with_more_nodes(all, pins);
  }
  try {
    for (int times = 2; times <= kMostTimesNodes; times *= 2) {
      JobPtr enough = on_nodes(job, free, nodes * times);
      if (!enough) continue;
      const int few = nodes * times / 2;
      for (int quarters = 5; quarters < 8; ++quarters) {
        if (few * quarters % 4 != 0) continue;
        JobPtr fewer = on_nodes(job, free, few * quarters / 4);
        if (!fewer) continue;
        enough = std::move(fewer);
        break;
      }
      return fmt::format("It fits with {} ({}): {}", counted(enough->cluster.nodes(), "node"),
                         counted(enough->cluster.devices(), "device"), fastest(enough, free));
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
    if (fits(shorter, pins))
      return fmt::format("It fits with sequences of {} tokens: {}", seq_len, fastest(shorter, pins));
  }
  return {};
}

// What owners of few devices do: the weights stay as they are, in their own precision or in 4 bits.
std::string with_adapters(const JobPtr& job, const Pins& pins, BaseType base) {
  if (!job->workload.transformer) return {};
  FineTuning tuning = job->workload.transformer->fine_tuning;
  if (tuning.base != BaseType::none || (tuning.rank > 0 && base == BaseType::none)) return {};
  if (tuning.rank == 0) tuning.rank = kRank;
  tuning.base = base;
  auto adapted = std::make_shared<Job>(*job);
  fine_tune(adapted->workload, tuning);
  const std::string plan = fastest(adapted, pins);
  if (plan.empty()) return {};
  const std::string in = base == BaseType::none ? "" : fmt::format(" and `quantize_base` {}", name_of(base));
  return fmt::format("It fits with adapters beside frozen weights (`lora_rank` {}{}): {}", tuning.rank, in,
                     plan);
}

// What waits in the hosts' memory is not on the devices.
std::string with_offload(const JobPtr& job, const Pins& pins, Offload offload) {
  if (offload_of(job->runtime) >= offload) return {};
  auto moved = std::make_shared<Job>(*job);
  try {
    set_offload(offload, moved.get());
  } catch (const UserError&) {
    return {};  // processors
  } catch (const NoAnswer&) {
    return {};  // the hosts are too small
  }
  const std::string plan = fastest(moved, pins);
  return plan.empty()
             ? plan
             : fmt::format("It fits with states in host memory (`offload` {}): {}", name_of(offload), plan);
}

}  // namespace

std::string nothing_fits(const JobPtr& job, const Pins& pins, const Candidates& candidates) {
  const Memory& memory = candidates.smallest_memory;
  std::string text = fmt::format(
      "none of {} plans fits in memory: the smallest, {}, needs {} on the devices of stage {}, {} more "
      "than their {}",
      with_commas(candidates.count), describe(Plan{job, candidates.smallest->choices}),
      human_bytes(memory.total), memory.stage, human_bytes(memory.needed - memory.capacity),
      human_bytes(memory.capacity));
  std::vector<std::string> changes = without_a_pin(job, pins);
  // A pin that stands in the way is the nearest; whoever has none chooses among the others by their costs.
  if (changes.empty()) {
    std::string larger = with_more_devices(job, pins);
    if (larger.empty()) larger = with_more_nodes(job, pins);
    for (std::string found :
         {std::move(larger), with_shorter_sequences(job, pins), with_offload(job, pins, Offload::optimizer),
          with_offload(job, pins, Offload::all), with_adapters(job, pins, BaseType::none),
          with_adapters(job, pins, BaseType::nf4_dq)})
      if (!found.empty()) changes.push_back(std::move(found));
  }
  if (changes.empty())
    return text +
           ". No change of a pin, the number of nodes, the sequence length, what is kept in host memory or "
           "what "
           "is trained would make it fit";
  for (const std::string& change : changes) text += ". " + change;
  return text;
}

}  // namespace orrery::planner
