// Memory of this process as the kernel counts it.
#pragma once

namespace orrery::exec {

double resident_bytes();       // now
double resident_peak_bytes();  // at most so far

}  // namespace orrery::exec
