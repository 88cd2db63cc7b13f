// Classes of ranks that do the same in like surroundings: one of each is simulated.
#pragma once

#include <vector>

#include "program/plan.h"

namespace orrery::sim {

struct RankClass {
  int representative = 0;  // lowest rank
  int size = 0;
};

struct Folding {
  std::vector<RankClass> classes;
  std::vector<int> class_of;  // by rank
};

// From the plan's coordinates alone (stage, device profile and speed, link classes of the routes of each of
// its groups), refined until stable; no Program is lowered. O(ranks x dimensions).
Folding fold_ranks(const Plan& plan);
Folding no_folding(const Plan& plan);

}  // namespace orrery::sim
