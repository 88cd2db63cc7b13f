// The figures of `validate --published` as a page of Markdown, to be kept and compared
// (tests/golden/published.md).
#pragma once

#include <string>

#include "base/json.h"

namespace orrery::evidence {

// `result` is validate_published's. Statistics of the step time by source, and the worst ten rows.
std::string published_markdown(const Json& result);

}  // namespace orrery::evidence
