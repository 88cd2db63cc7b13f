// The search: enumerate, cut by memory, order by the closed form, simulate the best, rank.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "planner/evaluation.h"

namespace orrery::planner {

enum class Objective { step_time, cost, energy, memory };

// What the user fixed; everything else is searched.
struct Pins {
  std::optional<int> tp, pp, dp, cp, ep, etp, micro_batch, interleave, zero, recompute_layers, shard_group,
      servers, staleness;
  std::optional<Schedule> schedule;
  std::optional<Recompute> recompute;
  std::optional<std::vector<int>> stage_layers;
  std::optional<std::array<Dimension, 5>> order;
  std::optional<bool> sequence_parallel, overlap_grad_reduce;
  std::optional<double> bucket_bytes, topk_ratio, capacity_factor;
  std::optional<Compression> grad_compression;
  std::optional<Sync> sync;
};

struct SearchOptions {
  Objective objective = Objective::step_time;
  int top = 10;  // plans to report
  int jobs = 0;  // processes; 0: the processors of this machine
  double budget_s =
      1.0;  // wall time after which no further batch of simulations starts; the answer then says its gap
};

struct SearchResult {
  std::vector<Evaluation> plans;  // best first, at most `top`, each simulated
  std::int64_t candidates = 0;    // plans with distinct Programs
  std::int64_t feasible = 0;      // that fit in memory
  std::int64_t simulated = 0;
  bool proven = false;  // best under this model: no candidate's lower bound is below the best simulated
  double gap = 0;       // (best - least lower bound of the rest) / best; 0 when proven
  double search_s = 0;
  std::string why;  // three sentences, from numbers
};

// Throws NoAnswer when no plan fits (what is short, by how much, the nearest change that would fit) and
// UserError when the pins contradict each other or the job.
SearchResult search(std::shared_ptr<const Job> job, const Pins& pins, const SearchOptions& options);

}  // namespace orrery::planner
