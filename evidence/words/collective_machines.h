// Descriptions of the machines that published measurements of collectives were made on: links of
// evidence/data/machines.textproto and the fabrics there.
#pragma once

#include <optional>
#include <string>

#include "topologies/cluster.h"

namespace orrery::evidence {

struct StatedMachine {
  std::string gpu;  // as the table calls it
  int devices = 0;  // of the whole measurement
  int nodes = 1;
  int devices_per_node = 0;
  std::string inter_link;
  double intra_share = 0;  // of the links' rate; 0: all
};

// The cluster, or why there is none in `why_not`.
std::optional<Cluster> collective_machine(const StatedMachine& machine, std::string* why_not);

}  // namespace orrery::evidence
