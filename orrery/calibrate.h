// This machine measured, or a cluster calibrated by what its owner has measured already: files in, a profile
// that later plans find out.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "exec/launch/launcher.h"
#include "measurements/calibration/calibrate.h"
#include "measurements/kinds.h"

namespace orrery {

struct CalibrateRequest {
  std::string cluster;             // a file or a name of the catalog
  std::vector<std::string> files;  // of any kind that is known (measurements/kinds.h), in any order
  std::string runtime;             // of the steps; empty: what the files say
  std::string out;                 // empty: where plans on that cluster find it
};
struct SiteCalibrated {
  std::string cluster, file;  // its name; where its profile was written
  measurements::Measurements measured;
  measurements::Calibrated calibrated;
};
// Throws UserError where files are of no known kind or contradict each other or the cluster, NoAnswer where
// their numbers are implausible. Nothing is written then. Where a profile was stored before, it is replaced:
// files that shall count are given again.
SiteCalibrated calibrate_from(const CalibrateRequest& request);

struct MachineCalibrated {
  int exit_code = 0;  // of the executor
  std::string said;   // what it said on stderr
  Json report;        // what it measured, as `calibrate` prints it
};
// Measures this machine's cores, memory and links. `out`: where the profile is written; empty: where plans on
// localhost find it.
MachineCalibrated calibrate_machine(MpiLibrary mpi, const std::string& out = {});

}  // namespace orrery
