// Reading and writing files so that nothing half-written is ever left behind.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace orrery {

constexpr std::uint64_t kMaxTextBytes = 64ULL << 20;

// The whole file. Throws UserError when it is missing, unreadable, not a regular file or larger than
// `max_bytes`.
std::string read_file(const std::filesystem::path& path, std::uint64_t max_bytes = kMaxTextBytes);

// Writes to a temporary name beside `path` and renames. Throws UserError when the place cannot be written.
void write_file_atomically(const std::filesystem::path& path, std::string_view content);

// Where calibrations live: $ORRERY_DATA_DIR, else $XDG_DATA_HOME/orrery, else ~/.local/share/orrery.
std::filesystem::path user_data_folder();

// A folder that is removed with everything in it.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace orrery
