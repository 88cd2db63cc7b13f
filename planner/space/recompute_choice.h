// Which modules selective recomputation is searched with.
#pragma once

#include <vector>

#include "program/plan.h"

namespace orrery::planner {

// By what they compute; 0 is what the runtime runs again unasked. A runtime that cannot be told what to run
// again has that alone. One that can has a ladder, each rung with what the one before has and what costs next
// least for a byte that it frees: what is no product (norms, experts' activation), before it the attention
// core where its scores are kept; latent attention's way up; dense layers' MLPs; all of the layers' experts.
// What the model has nothing of makes no rung.
std::vector<ModuleSet> searched_modules(const Job& job);

}  // namespace orrery::planner
