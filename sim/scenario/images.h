// The groups and peers of the ranks that a simulated rank stands for.
#pragma once

#include <vector>

#include "program/plan.h"
#include "program/program.h"

namespace orrery::sim {

class Images {
 public:
  explicit Images(const Plan& plan);
  // `group` has `member`; the group that is to `other` what this one is to `member`.
  Group group(const Group& group, int member, int other) const;
  // The rank that is to `other` what `peer` is to `rank`.
  int peer(int rank, int peer, int other) const;

 private:
  const Plan* plan_;
  std::vector<Coordinates> at_;
};

}  // namespace orrery::sim
