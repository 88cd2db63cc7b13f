// Steps of many micro-batches, extended from two of fewer.
//
// Behind its warm-up a pipeline repeats itself: durations are fixed, so ends follow a linear recurrence in
// the max-plus algebra, which is periodic from some micro-batch on (Baccelli, Cohen, Olsder, Quadrat 1992,
// theorem 3.109). Each further round of as many micro-batches as there are stages then adds the same time,
// the same bytes and the same work. How far a condensed step is from the whole one is in docs/simulator.md.
#pragma once

#include <cstdint>
#include <optional>

#include "sim/simulator.h"

namespace orrery::sim {

// Of so many micro-batches, through layers (or stages, where these are more) of one rank a stage.
double passes_of(const Plan& plan, std::int64_t micro_batches);

// Micro-batches of the two steps that stand for a plan's.
struct Fewer {
  std::int64_t shorter = 0, longer = 0;
};
// None where little would be saved, or where replicas do not all do the same.
std::optional<Fewer> fewer_micro_batches(const Plan& plan);

struct Condensed {
  Plan shorter, longer;  // the same plan with smaller batches
  double ratio = 0;      // (micro-batches - longer's) / (longer's - shorter's)
};
// None where fewer_micro_batches() has none.
std::optional<Condensed> condensed(const Plan& plan);

// What the whole plan's simulation is expected to be; without timeline.
Simulation extended(const Condensed& plans, const Simulation& shorter, Simulation longer);

}  // namespace orrery::sim
