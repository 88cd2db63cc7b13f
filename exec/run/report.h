// Where a result goes that --json may ask for.
#pragma once

#include <string>

#include "base/json.h"

namespace orrery::exec {

// Writes `result` to `file` (empty: nowhere; "-": stdout). False where stdout now belongs to it: nothing else
// may be printed there.
bool deliver(const Json& result, const std::string& file);

}  // namespace orrery::exec
