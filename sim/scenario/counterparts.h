// Whom the ranks that a simulated rank stands for talk to, where it talks to one.
#pragma once

#include <vector>

#include "program/plan.h"
#include "program/program.h"

namespace orrery::sim {

class Counterparts {
 public:
  explicit Counterparts(const Plan& plan);
  // The rank that is to `other` what `peer` is to `rank`.
  int peer(int rank, int peer, int other) const;

 private:
  const Plan* plan_;
  std::vector<Coordinates> at_;
};

}  // namespace orrery::sim
