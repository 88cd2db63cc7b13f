// Descriptions of the machines that published measurements of collectives were made on, from the words that
// the tables use for them.
#pragma once

#include <optional>
#include <string>

#include "topologies/cluster.h"

namespace orrery::planner {

struct PublishedMachine {
  std::string gpu;  // as the table calls it
  int devices = 0;  // of the whole measurement
  int nodes = 1;
  int devices_per_node = 0;
  std::string intra_link;
  std::string inter_link;
};

// The cluster, or why there is none in `why_not`.
std::optional<Cluster> published_machine(const PublishedMachine& machine, std::string* why_not);

}  // namespace orrery::planner
