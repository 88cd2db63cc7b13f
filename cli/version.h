// What `orrery --version` says.
#pragma once

#include <string>

namespace orrery::cli {

std::string version_text();

}  // namespace orrery::cli
