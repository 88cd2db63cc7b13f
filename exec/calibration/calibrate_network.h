// Measures the links of a described cluster with the executor's own messages, one rank a node.
#pragma once

#include <string>

#include "exec/communicators/communicator.h"

namespace orrery::exec {

struct NetworkCalibrationOptions {
  std::string cluster;  // the description: file of a proto::Cluster with one node type; rank r is on node r
  std::string host;     // what `calibrate` wrote on one of its hosts
  std::string out;
  std::string json;     // file for what was found; empty: none; "-": stdout
  std::string library;  // of the communicator
};

// Collective. Messages between pairs of nodes of each link class (leaf, spine, each node's own port):
// latency, and the fraction of the described rate that long messages reach, one way and both ways at once.
// Rank 0 writes the description with these and with the host's device profile and shared-memory messages in
// it, and prints what was found and which links do not carry what is described. Throws UserError where the
// description does not fit the ranks.
void calibrate_network(Communicator& world, const NetworkCalibrationOptions& options);

}  // namespace orrery::exec
