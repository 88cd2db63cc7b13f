#include "sim/scenario/counterparts.h"

#include "program/placement.h"

namespace orrery::sim {

Counterparts::Counterparts(const Plan& plan) : plan_(&plan) {
  const int world = plan.choices.world();
  at_.reserve(static_cast<std::size_t>(world));
  for (int rank = 0; rank < world; ++rank) at_.push_back(coordinates_of(plan, rank));
}

int Counterparts::peer(int rank, int peer, int other) const {
  const Choices& sizes = plan_->choices;
  const Coordinates& from = at_[static_cast<std::size_t>(rank)];
  const Coordinates& to = at_[static_cast<std::size_t>(peer)];
  Coordinates result = at_[static_cast<std::size_t>(other)];
  result.tp = (result.tp + to.tp - from.tp + sizes.tp) % sizes.tp;
  result.cp = (result.cp + to.cp - from.cp + sizes.cp) % sizes.cp;
  result.dp = (result.dp + to.dp - from.dp + sizes.dp) % sizes.dp;
  result.pp = (result.pp + to.pp - from.pp + sizes.pp) % sizes.pp;
  return rank_of(*plan_, result);
}

}  // namespace orrery::sim
