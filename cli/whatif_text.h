// What `orrery whatif` prints.
#pragma once

#include <string>

#include "orrery/orrery.h"

namespace orrery::cli {

// `shared_batch`: some point's global batch is another's default.
std::string text_of(const planner::whatif::Result& result, bool shared_batch);

}  // namespace orrery::cli
