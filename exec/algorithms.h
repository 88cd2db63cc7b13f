// The algorithm of each collective as the cost model chooses it, so that what is simulated is executed.
#pragma once

#include <cstdint>
#include <vector>

#include "exec/communicator.h"
#include "program/plan.h"
#include "topologies/network.h"

namespace orrery::exec {

class AlgorithmChooser {
 public:
  explicit AlgorithmChooser(const Plan& plan);
  // For a group of global ranks. Empty where the plan's machine is not described as one that speaks MPI.
  AlgorithmChoice for_group(const std::vector<std::int32_t>& ranks) const;

 private:
  const Plan& plan_;
  Network network_;
};

}  // namespace orrery::exec
