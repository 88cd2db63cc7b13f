// The space of plans: every Choices that a job admits under the user's pins, each with a Program of its own.
//
// What is searched when not pinned: tp over the divisors of a node's devices, pp over the divisors of the
// layers, cp over divisors that leave a rank at least 4,096 tokens of a sequence, ep over the divisors of
// dp*cp and of the experts, dp the rest of the world, micro-batches over the divisors of a replica's batch,
// schedule and interleaving, recomputation (none, selective, full, full for the first quarter, half and three
// quarters of a stage's layers), ZeRO 0-3, sequence parallelism, overlap of the gradient reduction. Lossy or
// asynchronous forms (compression, parameter servers) change what is trained: only when pinned. A form that
// has no lowering yet (check_plan refuses it) is left out.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "planner/search.h"
#include "program/plan.h"

namespace orrery::planner {

// Calls `visit` with each, in a fixed order; no two lower to the same Programs. Throws UserError when the
// pins contradict each other, the job or what can be lowered.
void for_each_plan(const std::shared_ptr<const Job>& job, const Pins& pins,
                   const std::function<void(const Choices&)>& visit);
// The same as a list.
std::vector<Choices> enumerate(const std::shared_ptr<const Job>& job, const Pins& pins);

// Divisors of n in increasing order.
std::vector<int> divisors(std::int64_t n);

}  // namespace orrery::planner
