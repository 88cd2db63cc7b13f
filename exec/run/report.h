// Where a result goes that --json may ask for.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"

namespace orrery::exec {

// Writes `result` of `verb`, behind the head that all answers have (base/answer/answer.h), to `file` (empty:
// nowhere; "-": stdout). False where stdout now belongs to it: nothing else may be printed there.
bool deliver(std::string_view verb, const Json& result, const std::string& file);

}  // namespace orrery::exec
