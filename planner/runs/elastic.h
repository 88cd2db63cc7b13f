// Plans that a job goes on with when nodes have failed: fewer data-parallel replicas, the same global batch.
#pragma once

#include <vector>

#include "planner/runs/goodput.h"
#include "program/plan.h"

namespace orrery::planner {

// The plan with so many replicas on as many whole nodes as they need: batches as even as micro-batches (and
// an interleaved schedule's groups of them) allow. Micro-batches may be smaller, by divisors, and an
// interleaved schedule may give way to 1F1B, which takes any number of them; of what is sound and fits in
// memory with the probability that a search asks for (or with the plan's own, where that is less) the two
// that the closed form finds fastest. Empty where nothing is; then `refusal` says why.
std::vector<Plan> forms_with_replicas(const Plan& plan, int replicas, std::string& refusal);

// How many nodes are in repair at once, but for one moment in a million: a Poisson number, since they fail
// one by one and each is repaired by itself.
int nodes_lost_at_most(double failures_per_s, double repair_s);

// By falling number of nodes: for each number of nodes from the plan's own less one down to `least_nodes`
// that a smaller plan needs, the fastest form, simulated, `jobs` processes at a time; at most
// kMostSmallerPlans, without those that are slower than a smaller one. Throws UserError where the cluster has
// nodes of several types, NoAnswer where not one replica can be spared.
std::vector<RunningPlan> smaller_plans(const Plan& plan, int least_nodes, int jobs);
constexpr int kMostSmallerPlans = 8;

}  // namespace orrery::planner
