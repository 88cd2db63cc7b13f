// The algorithm of each collective as the cost model chooses it, so that what is simulated is executed.
#pragma once

#include <cstdint>
#include <vector>

#include "exec/communicators/communicator.h"
#include "program/plan.h"
#include "topologies/network.h"

namespace orrery::exec {

class AlgorithmChooser {
 public:
  explicit AlgorithmChooser(const Plan& plan);
  // For a group of global ranks. Empty where the plan's machine is described as one that speaks by another
  // library.
  AlgorithmChoice for_group(const std::vector<std::int32_t>& ranks, CommunicationLibrary library) const;

 private:
  const Plan& plan_;
  Network network_;
};

}  // namespace orrery::exec
