// Whom the ranks that a simulated rank stands for talk to, where it talks to one.
#pragma once

#include <vector>

#include "program/plan.h"
#include "program/program.h"

namespace orrery::sim {

class Counterparts {
 public:
  explicit Counterparts(const Plan& plan);

  // Ranks fill nodes of one size, one after another.
  bool of_whole_nodes() const { return ranks_of_node_ > 0; }
  // The rank that is to `other` what `peer` is to `rank`. Of servers and their workers: as many nodes
  // further, and as many places further on the node, each round the circle.
  int peer(int rank, int peer, int other) const;

 private:
  const Plan* plan_;
  std::vector<Coordinates> at_;
  int ranks_of_node_ = 0;  // 0: nodes differ
};

}  // namespace orrery::sim
