// Data files that the build puts inside the binary (cmake/OrreryHelpers.cmake: orrery_embed).
#pragma once

#include <string_view>
#include <vector>

namespace orrery {

struct EmbeddedFile {
  std::string_view name;  // without folder and ending
  std::string_view content;
};

}  // namespace orrery
