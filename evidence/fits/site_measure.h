// What five measured steps of a site are worth: they are given to the calibration that `orrery calibrate
// CLUSTER` makes (measurements/calibration/steps.h), and the site's other steps are predicted before and
// after.
#pragma once

#include <string>
#include <vector>

#include "measurements/calibration/steps.h"

namespace orrery::evidence {

// The steps that one source measured on one kind of device and network under one runtime. The jobs and the
// prior are of factors that were fitted without that source.
struct Site {
  std::string name;
  std::vector<measurements::StepRow> rows;
  measurements::StepPrior prior;
};

// Prints a line for each site of ten rows or more, and the mean of them.
void measure_sites(const std::vector<Site>& sites);

}  // namespace orrery::evidence
