// A cluster calibrated by what its owner has measured already: files in, a profile that later plans find out.
#pragma once

#include <string>
#include <vector>

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

}  // namespace orrery
