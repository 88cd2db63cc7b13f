#include "sim/scenario/counterparts.h"

#include "program/placement.h"

namespace orrery::sim {
namespace {

// How many ranks are on each node, where they are as many on all and stand in order; else 0.
int ranks_of_node(const Plan& plan) {
  const auto node_of = [&](int rank) { return plan.job->cluster.place(device_of(plan, rank)).node; };
  const int world = plan.choices.world();
  int size = 1;
  while (size < world && node_of(size) == node_of(0)) ++size;
  if (world % size != 0) return 0;
  for (int rank = 0; rank < world; ++rank)
    if (node_of(rank) != node_of(rank / size * size)) return 0;
  for (int rank = size; rank < world; rank += size)
    if (node_of(rank) == node_of(rank - size)) return 0;
  return size;
}

int around(int place, int from, int to, int size) {
  return (place + to - from + size) % size;
}

}  // namespace

Counterparts::Counterparts(const Plan& plan) : plan_(&plan) {
  const int world = plan.choices.world();
  at_.reserve(static_cast<std::size_t>(world));
  for (int rank = 0; rank < world; ++rank) at_.push_back(coordinates_of(plan, rank));
  ranks_of_node_ = ranks_of_node(plan);
}

int Counterparts::peer(int rank, int peer, int other) const {
  const Choices& sizes = plan_->choices;
  if (sizes.has_servers() && of_whole_nodes()) {
    const int size = ranks_of_node_;
    const int node = around(other / size, rank / size, peer / size, sizes.world() / size);
    return node * size + around(other % size, rank % size, peer % size, size);
  }
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
