// What all ranks have noted, on rank 0: the run's times, losses and timeline, and the report of them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "exec/launch/answers.h"
#include "exec/run/rank_run.h"
#include "exec/state/digest.h"
#include "program/plan.h"
#include "program/program.h"
#include "program/timeline.h"

namespace orrery::exec {

// All times since the first step began.
struct Merged {
  std::vector<RankReport> ranks;
  std::vector<std::int64_t> batches;  // by rank, that it trained: steps, or an asynchronous worker's batches
  std::vector<double> loss;           // by step
  std::vector<double> step_ends_s;    // by step, of the last rank
  std::vector<double> step_begins_s;  // where something (a checkpoint) came before it; else 0
  std::vector<std::vector<RoutedRows>> routed;  // by rank
  Timeline timeline;                            // of the last KeptSteps::kMost steps
};

// `notes`: of every rank, in their order.
Merged merge(const Plan& plan, const std::vector<RankNotes>& notes);

// Of the steps that count: all but the first, which touches fresh memory, where there are several.
std::vector<double> step_times(const Merged& merged);

// Mean busy seconds of one step, by kind, of each rank.
std::vector<std::map<std::string, double>> busy_by_kind(const Merged& merged,
                                                        const std::vector<Program>& programs);

// How evenly routers loaded the ranks that share experts, mean over layers, micro-batches and steps; nothing
// where no tokens travel to experts.
std::optional<RoutingOfRun> routing_of_run(const Merged& merged, const std::vector<Program>& programs,
                                           const MixtureOfExperts& moe);

// How it was run.
struct RunFacts {
  std::string backend;
  std::string library;
  std::string device;
  std::string data;
};
RunAnswer report(const Plan& plan, const Merged& merged, const std::vector<Program>& programs,
                 const std::map<std::string, TensorDigest>& digest, const RunFacts& facts);

// `paces` were measured before and after each step, or before and after all of them; `times` are of the last
// steps.
PaceOfRun pace_of_run(std::vector<double> times, const std::vector<double>& paces);

void print_summary(const RunAnswer& run);

std::string serialized(const Timeline& timeline);  // as a proto::Timeline of the real clock

}  // namespace orrery::exec
