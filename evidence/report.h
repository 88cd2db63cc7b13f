// The figures of `validate --published` as a page of Markdown, to be kept and compared
// (tests/golden/published.md).
#pragma once

#include <string>

#include "evidence/published.h"

namespace orrery::evidence {

// Statistics of the step time by source, and the worst ten rows.
std::string published_markdown(const Published& result);

}  // namespace orrery::evidence
