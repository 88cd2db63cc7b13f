// Precisions that devices have no units for.
#pragma once

#include <string>
#include <vector>

#include "program/plan.h"

namespace orrery {

// "v100-sxm2-32g has no bf16 units: products are computed in fp32", for each kind of device that computes in
// another type than the job's precision.
std::vector<std::string> without_units(const Job& job);

}  // namespace orrery
