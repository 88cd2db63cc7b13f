// Measures this machine with the executor's own kernels and collectives, and fits the models that plans on
// `localhost` are predicted by.
#pragma once

#include <string>

#include "exec/communicators/communicator.h"

namespace orrery::exec {

struct CalibrationOptions {
  std::string out;           // empty: topologies' localhost_calibration_file()
  std::string observations;  // file for the raw measurements as CSV; empty: none
  std::string json;          // file for what was found; empty: none; "-": stdout
  std::string library;       // of the communicator
  std::string command;       // for the record
};

// Collective; every rank runs on a core of its own (as many ranks as cores). Rank 0 writes a proto::Cluster
// and prints what was found. About half a minute.
void calibrate(Communicator& world, const CalibrationOptions& options);

}  // namespace orrery::exec
