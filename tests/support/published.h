// Where the published tables lie: outside the project, read in place.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace orrery::test {

// $ORRERY_PUBLISHED, or the folder beside the checkout that holds `under`; empty where this machine has none.
inline std::filesystem::path published(const std::string& under) {
  if (const char* folder = std::getenv("ORRERY_PUBLISHED")) return folder;
  for (const std::filesystem::path& place : {std::filesystem::path(ORRERY_SOURCE_DIR) / "../shared/published",
                                             std::filesystem::path("/work/shared/published")})
    if (std::filesystem::exists(place / under)) return place;
  return {};
}

// Its tables, sorted.
inline std::vector<std::string> published_tables(const std::filesystem::path& folder,
                                                 const std::string& under) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder / under))
    if (entry.path().extension() == ".csv") files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace orrery::test
