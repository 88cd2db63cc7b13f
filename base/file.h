// Reading and writing files so that nothing half-written is ever left behind.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

namespace orrery {

constexpr std::uint64_t kMaxTextBytes = 64ULL << 20;

// The whole file. Throws UserError when it is missing, unreadable, not a regular file or larger than
// `max_bytes`.
std::string read_file(const std::filesystem::path& path, std::uint64_t max_bytes = kMaxTextBytes);

// The first line of a small file, as the system writes them below /sys; empty where it cannot be read.
std::string first_line(const std::filesystem::path& path);

// Where a new content of `path` is written so that nothing half-written is ever there. What symbolic links
// lead to is what is replaced, they stay; a device such as /dev/null or a pipe cannot be renamed over and is
// written as it is.
class FileInMaking {
 public:
  explicit FileInMaking(const std::filesystem::path& path);
  // To be written: a temporary name beside the file, or the file itself.
  const std::filesystem::path& written() const { return written_; }
  bool in_place() const { return written_ == file_; }
  // May it be? Otherwise errno says why not.
  bool may_be_written() const;
  // Once all is written: puts it into its place. What the system has against that, otherwise empty.
  std::error_code finish() const;
  void discard() const;

 private:
  std::filesystem::path file_, written_;
};

// Writes a FileInMaking. Throws UserError when the place cannot be written.
void write_file_atomically(const std::filesystem::path& path, std::string_view content);

// Before what takes long, whose result it is: throws UserError where `file` cannot be written, so far as that
// can be told without doing so. Empty (nowhere) and "-" (stdout) can.
void check_writable(const std::string& file);

// At once. Throws UserError where stdout does not take it, or has not taken what came before (a full disk).
void write_to_stdout(std::string_view text);

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
