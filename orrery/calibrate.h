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

// A cluster's hosts measured, of processors of one type of node: one of its hosts' cores and memory first,
// unless they are known, then a rank on each node for the links.
struct HostsRequest {
  std::string cluster;                   // its file
  std::string host;                      // a calibrated file of such a host; empty: the first one is measured
  std::string out;                       // where the calibrated cluster is written
  std::vector<std::string> mpirun_args;  // further words for mpirun
};
// Throws UserError where it is no such cluster, `out` is empty, or this process is a rank of a launcher.
MachineCalibrated calibrate_hosts(MpiLibrary mpi, const HostsRequest& request);
// The same for who wants to read along: what the ranks say of the links goes to stdout, their JSON to `json`
// ("-": stdout, and nothing else there; empty: nowhere). The executor's exit code.
int calibrate_hosts_aloud(MpiLibrary mpi, const HostsRequest& request, const std::string& json);

}  // namespace orrery
