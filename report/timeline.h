// A step's timeline as few numbers as a page can hold: by rank what each stretch of the step was spent on,
// and what each stream ran when.
#pragma once

#include "base/json.h"
#include "program/plan.h"
#include "sim/simulator.h"

namespace orrery {

// Ranks shown, and stretches and spans of all of them together.
constexpr std::size_t kMostRows = 64;
constexpr std::size_t kMostStretches = 36'000;
constexpr std::size_t kMostSpans = 36'000;
// What is joined of a rank's streams is at most this share of the step; rather than join more, fewer ranks'
// streams are told.
constexpr double kCoarsestSpans = 1e-3;
// Times are whole numbers of so many parts of what is shown.
constexpr double kTicks = 1 << 20;

// The last simulated step, or, where ranks end it at different times, each rank's own:
//   begin_s, length_s; ranks, shown; parts, kinds, streams, labels: names;
//   resolution_s: stretches below it are joined, each kind keeping its time; span_resolution_s likewise;
//   rows: rank, stage, dp, tp, like (ranks that do the same), critical;
//     stretches: [ticks since the last one's end, ticks, part]…, flat;
//     lanes (none where its streams are not told): stream and spans, [ticks since the last one's start,
//     ticks, kind, label, instructions, micro-batch or -1]…, flat; "mb#" in a label stands for "mb" and it.
// `like`: by simulated rank, in order (sim/scenario/folding.h).
Json timeline_json(const Plan& plan, const sim::Simulation& simulation, bool fold);

}  // namespace orrery
