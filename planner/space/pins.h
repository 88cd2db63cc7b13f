// What the user fixed of a plan; everything else is searched.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "program/plan.h"

namespace orrery::planner {

struct Pins {
  std::optional<int> tp, pp, dp, cp, ep, etp, micro_batch, interleave, zero, recompute_layers, shard_group,
      servers, staleness;
  std::optional<Schedule> schedule;
  std::optional<Recompute> recompute;
  std::optional<ModuleSet> recompute_modules;  // with selective; none: what the runtime runs again
  std::optional<std::vector<int>> stage_layers;
  std::optional<std::array<Dimension, 5>> order;
  std::optional<bool> sequence_parallel, overlap_experts, overlap_grad_reduce;
  std::optional<double> bucket_bytes, topk_ratio, capacity_factor;
  std::optional<Compression> grad_compression;
  std::optional<Sync> sync;
  // Not searched otherwise: what changes what is trained, and what is simulated rank by rank.
  bool search_compression = false, search_sync = false;
  bool any_runtime = false;  // search what the job's runtime cannot run, too
  bool operator==(const Pins&) const = default;
};

}  // namespace orrery::planner
