// Why no plan fits in memory, and the nearest change of the question that has an answer.
#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "base/error.h"
#include "base/format.h"
#include "planner/closed_form/memory_model.h"
#include "planner/search/candidates.h"
#include "planner/space/offload.h"
#include "planner/uncertainty/outlook.h"
#include "topologies/node_counts.h"

namespace orrery::planner {
namespace {

// Clusters of up to this many times the nodes are tried.
constexpr int kMostTimesNodes = 1024;

constexpr int kLeastTokens = 128;  // of the sequences that are tried

using JobPtr = std::shared_ptr<const Job>;

constexpr int kRank = 16;              // of the adapters that are tried
constexpr int kMostEstimated = 2'000;  // fitting plans of a change whose times are estimated

// Memory hardly depends on the bucket's size, and one chunk a stage takes least.
Pins without_details(Pins pins) {
  if (!pins.bucket_bytes) pins.bucket_bytes = 0;
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

// How likely a plan is to fit that is named.
struct Likely {
  double wanted = 1;          // the probability that was asked for
  bool or_predicted = false;  // of clusters and lengths, too, those on which plans are less likely to fit
  double fillable(const Job& job) const { return std::min(1.0, fillable_share(wanted, spread_of(job))); }
};

// Of a plan that is less likely to fit than is wanted, how likely it is, in words; else nothing.
std::string probability_below(const Likely& likely, const Job& job, const Memory& memory) {
  if (memory.fits(likely.fillable(job))) return {};
  return fmt::format(" (fits with {:.0f}% probability)",
                     100 * fit_probability(memory.needed, memory.capacity, spread_of(job)));
}

// The fastest of the plans that are likely to fit, by the closed form, with its memory and its step, in
// words; of a large space the fastest of its first. Where none is, the likeliest that is predicted to fit;
// empty where none is.
std::string fastest(const JobPtr& job, const Pins& pins, const Likely& likely) {
  struct Found {
    Choices choices;
    Memory memory;
    double step_s = 0;
  };
  std::optional<Found> best, likeliest;
  const double fillable = likely.fillable(*job);
  try {
    MemoryModel model(job);
    Estimator estimator(job);
    int estimated = 0;
    for_families_until(job, without_details(pins), [&](const Family& family) {
      for (const Sharding& sharding : *family.shardings) {
        // Of each kind in the order of what they compute: the first that fits is the fastest of its kind.
        std::optional<Recompute> fitted;
        for (const Recomputed& recomputed : *family.recomputes) {
          if (fitted == recomputed.kind) continue;
          const Choices choices = plan_of(family, recomputed, sharding);
          const Memory memory = model.predict(choices);
          if (memory.fits() && (!likeliest || memory.needed < likeliest->memory.needed))
            likeliest = {choices, memory};
          if (!memory.fits(fillable)) continue;
          if (!fitted) ++estimated;
          const double step_s = estimator.times(choices).estimate_s;
          if (!best || step_s < best->step_s) best = {choices, memory, step_s};
          fitted = recomputed.kind;
        }
      }
      return estimated < kMostEstimated;
    });
    if (!best && likeliest) {
      best = likeliest;
      best->step_s = estimator.times(best->choices).estimate_s;
    }
  } catch (const UserError&) {
    return {};
  }
  if (!best) return {};
  return fmt::format("{}, {}{} and {} a step", describe(Plan{job, best->choices}),
                     human_bytes(best->memory.total), probability_below(likely, *job, best->memory),
                     human_seconds(best->step_s));
}

// Calls `fit` with the plans that may take least memory of their families and are predicted to fit, until it
// has seen enough.
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

// The plan that takes least memory, if any is predicted to fit.
std::optional<std::pair<Choices, Memory>> roomiest(const JobPtr& job, const Pins& pins) {
  std::optional<std::pair<Choices, Memory>> best;
  for_small_plans(job, pins, [&](const Choices& choices, const Memory& memory) {
    if (!best || memory.total < best->second.total) best = {choices, memory};
    return true;
  });
  return best;
}

bool fits(const JobPtr& job, const Pins& pins, const Likely& likely) {
  const double fillable = likely.or_predicted ? 1 : likely.fillable(*job);
  bool found = false;
  for_small_plans(job, pins, [&](const Choices&, const Memory& memory) {
    found = memory.fits(fillable);
    return !found;
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

// Pins that alone stand in the way, `surely` where a plan without one is as likely to fit as is wanted.
struct Unpinned {
  std::vector<std::string> changes;
  bool surely = false;
};
Unpinned without_a_pin(const JobPtr& job, const Pins& pins, const Likely& likely) {
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
  Unpinned found;
  for (const Change& change : changes) {
    if (!change.pinned) continue;
    Pins free = pins;
    change.unpin(free);
    const auto plan = roomiest(job, free);
    if (!plan) continue;
    const std::string below = probability_below(likely, *job, plan->second);
    found.surely = found.surely || below.empty();
    found.changes.push_back(fmt::format("It fits without {}: {}, {}{}", change.name,
                                        describe(Plan{job, plan->first}), human_bytes(plan->second.total),
                                        below));
  }
  return found;
}

// The job on so many quarters of its nodes of each kind; nothing where these are no whole nodes or it does
// not fit there.
JobPtr on_quarters(const JobPtr& job, const Pins& pins, int quarters, const Likely& likely) {
  NodeCounts nodes = node_counts(job->cluster);
  for (int& of_kind : nodes.of_kind) {
    const std::int64_t four_times = std::int64_t{of_kind} * quarters;
    if (four_times % 4 != 0 || four_times / 4 > kMaxNodes) return nullptr;
    of_kind = static_cast<int>(four_times / 4);
  }
  auto larger = std::make_shared<Job>(*job);
  larger->cluster = with_nodes(larger->cluster, nodes);
  return fits(larger, pins, likely) ? larger : nullptr;
}

// More devices of each node of which some were asked for, up to all of them.
std::string with_more_devices(const JobPtr& job, const Pins& pins, const Likely& likely) {
  const NodeType& node = job->cluster.groups.front().node;
  if (!node.whole) return {};
  Pins free = pins;
  free.dp.reset();
  for (int devices = node.devices + 1; devices <= node.whole->devices; ++devices) {
    if (devices % node.devices != 0 && devices != node.whole->devices) continue;
    auto larger = std::make_shared<Job>(*job);
    const int nodes = larger->cluster.nodes();
    larger->cluster = with_devices(larger->cluster, nodes * devices);
    if (fits(larger, free, likely))
      return fmt::format("It fits with {} of {}: {}", counted(devices, "device"),
                         nodes > 1 ? "each node" : "the node", fastest(larger, free, likely));
  }
  return {};
}

// Twice the nodes (of each kind), four times, …; then the quarters between the first that do and the last
// that did not.
std::string with_more_nodes(const JobPtr& job, const Pins& pins, const Likely& likely) {
  if (job->cluster.fabric.transport == Transport::host) return {};
  Pins free = pins;
  free.dp.reset();
  if (const auto whole = job->cluster.groups.front().node.whole) {
    auto all = std::make_shared<Job>(*job);
    all->cluster = with_devices(all->cluster, all->cluster.nodes() * whole->devices);
    return with_more_nodes(all, pins, likely);
  }
  try {
    for (int times = 2; times <= kMostTimesNodes; times *= 2) {
      JobPtr enough = on_quarters(job, free, 4 * times, likely);
      if (!enough) continue;
      for (int quarters = 5; quarters < 8; ++quarters) {
        JobPtr fewer = on_quarters(job, free, times / 2 * quarters, likely);
        if (!fewer) continue;
        enough = std::move(fewer);
        break;
      }
      const Cluster& found = enough->cluster;
      const std::string nodes =
          found.groups.size() == 1 ? counted(found.nodes(), "node") : text_of(node_counts(found)) + " nodes";
      return fmt::format("It fits with {} ({}): {}", nodes, counted(found.devices(), "device"),
                         fastest(enough, free, likely));
    }
  } catch (const UserError&) {
    // Nodes that are not connected, or too many.
  }
  return {};
}

std::string with_shorter_sequences(const JobPtr& job, const Pins& pins, const Likely& likely) {
  for (int seq_len = job->training.seq_len / 2; seq_len >= kLeastTokens; seq_len /= 2) {
    auto shorter = std::make_shared<Job>(*job);
    shorter->training.seq_len = seq_len;
    if (fits(shorter, pins, likely))
      return fmt::format("It fits with sequences of {} tokens: {}", with_commas(seq_len),
                         fastest(shorter, pins, likely));
  }
  return {};
}

// What owners of few devices do: the weights stay as they are, in their own precision or in 4 bits.
std::string with_adapters(const JobPtr& job, const Pins& pins, BaseType base, const Likely& likely) {
  if (!job->workload.transformer) return {};
  FineTuning tuning = job->workload.transformer->fine_tuning;
  if (tuning.base != BaseType::none || (tuning.rank > 0 && base == BaseType::none)) return {};
  if (tuning.rank == 0) tuning.rank = kRank;
  tuning.base = base;
  auto adapted = std::make_shared<Job>(*job);
  fine_tune(adapted->workload, tuning);
  const std::string plan = fastest(adapted, pins, likely);
  if (plan.empty()) return {};
  const std::string in = base == BaseType::none ? "" : fmt::format(" and `quantize_base` {}", name_of(base));
  return fmt::format("It fits with adapters beside frozen weights (`lora_rank` {}{}): {}", tuning.rank, in,
                     plan);
}

// What waits in the hosts' memory is not on the devices.
std::string with_offload(const JobPtr& job, const Pins& pins, Offload offload, const Likely& likely) {
  if (offload_of(job->runtime) >= offload) return {};
  auto moved = std::make_shared<Job>(*job);
  try {
    set_offload(offload, moved.get());
  } catch (const UserError&) {
    return {};  // processors
  } catch (const NoAnswer&) {
    return {};  // the hosts are too small
  }
  const std::string plan = fastest(moved, pins, likely);
  return plan.empty()
             ? plan
             : fmt::format("It fits with states in host memory (`offload` {}): {}", name_of(offload), plan);
}

// More devices or nodes, shorter sequences, what waits with the hosts or is not trained.
std::vector<std::string> other_changes(const JobPtr& job, const Pins& pins, const Likely& likely) {
  std::string larger = with_more_devices(job, pins, likely);
  if (larger.empty()) larger = with_more_nodes(job, pins, likely);
  std::vector<std::string> changes;
  for (std::string found :
       {std::move(larger), with_shorter_sequences(job, pins, likely),
        with_offload(job, pins, Offload::optimizer, likely), with_offload(job, pins, Offload::all, likely),
        with_adapters(job, pins, BaseType::none, likely), with_adapters(job, pins, BaseType::nf4_dq, likely)})
    if (!found.empty()) changes.push_back(std::move(found));
  return changes;
}

}  // namespace

std::string nothing_fits(const JobPtr& job, const Pins& pins, const Candidates& candidates,
                         double fit_probability) {
  const Memory& memory = candidates.smallest_memory;
  std::string text = fmt::format(
      "none of {} plans fits in memory: the smallest, {}, needs {} on the devices of stage {}, {} more "
      "than their {}",
      with_commas(candidates.count), describe(Plan{job, candidates.smallest->choices}),
      human_bytes(memory.needed), memory.stage, human_bytes(memory.needed - memory.capacity),
      human_bytes(memory.capacity));
  Likely likely{fit_probability};
  auto [changes, surely] = without_a_pin(job, pins, likely);
  // A pin that stands in the way is the nearest; whoever has none chooses among the others by their costs.
  const auto add_others = [&, &changes = changes] {
    for (std::string& change : other_changes(job, pins, likely)) changes.push_back(std::move(change));
  };
  if (!surely) add_others();
  likely.or_predicted = true;
  if (changes.empty()) add_others();
  if (changes.empty())
    return text +
           ". No change of a pin, the number of nodes, the sequence length, what is kept in host memory or "
           "what "
           "is trained would make it fit";
  for (const std::string& change : changes) text += ". " + change;
  return text;
}

}  // namespace orrery::planner
