// A comparison for people.
#pragma once

#include <string>

#include "orrery/orrery.h"

namespace orrery::cli {

std::string text_of(const CompareRequest& request, const comparison::Comparison& comparison);

}  // namespace orrery::cli
