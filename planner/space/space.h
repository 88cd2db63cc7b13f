// The space of plans: every Choices that a job admits under the user's pins, each with a Program of its own.
//
// What is searched when not pinned (docs/planner.md has the table, bench/planner_space prints it):
// tp over the divisors of a node's devices and, over RDMA, two nodes; pp over the divisors of the
// world that leave every stage a layer; cp over divisors that leave a rank at least 2,048 tokens of a
// sequence; ep over the divisors of dp*cp (with sequence parallelism tp/etp*dp*cp) and of the experts; dp the
// rest of the world; dp inside pp or pp inside dp on the machine, where it has several nodes; micro-batches
// over the divisors of a replica's batch, up to 131,072 tokens; schedule and interleaving; cuts of the
// pipeline: even, and without interleaving balanced by FLOPs, with embedding and head counted as layers, and
// by what the layers take (of chunks, where layers are of several kinds); recomputation: none, selective,
// full, full for the first K layers of a stage, for every K; sequence parallelism; ZeRO 0-3 over all of
// dp*cp, or the part of it that stands on one, two, four or eight nodes; overlap of the gradient reduction;
// bucket sizes that make different buckets. What the runtime cannot run (abilities.h) is left out unless
// pinned. Lossy or asynchronous forms (compression, asynchronous parameter servers) change what is trained:
// only when pinned. A form that has no lowering yet (check_plan refuses it) is left out.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "planner/space/family.h"
#include "planner/space/pins.h"
#include "program/plan.h"

namespace orrery::planner {

// Calls `visit` with each family, in a fixed order; no two plans of the space lower to the same Programs.
// Throws UserError when the pins contradict each other, the job or what can be lowered.
void for_each_family(const std::shared_ptr<const Job>& job, const Pins& pins,
                     const std::function<void(Family&&)>& visit);
// The same until `visit` says that it has seen enough.
void for_families_until(const std::shared_ptr<const Job>& job, const Pins& pins,
                        const std::function<bool(Family&&)>& visit);
// All of them, plan by plan.
void for_each_plan(const std::shared_ptr<const Job>& job, const Pins& pins,
                   const std::function<void(const Choices&)>& visit);
// The same as a list.
std::vector<Choices> enumerate(const std::shared_ptr<const Job>& job, const Pins& pins);

// Of a layer that has any; 0 where none has.
int experts_of(const Workload& workload);

// Divisors of n in increasing order.
std::vector<int> divisors(std::int64_t n);

}  // namespace orrery::planner
