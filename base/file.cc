#include "base/file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "base/error.h"

namespace orrery {
namespace fs = std::filesystem;

std::string read_file(const fs::path& path, std::uint64_t max_bytes) {
  std::error_code code;
  const auto status = fs::status(path, code);
  if (code || !fs::exists(status))
    throw UserError(path.string(), 0, "cannot be opened", "expected an existing file");
  if (fs::is_directory(status)) throw UserError(path.string(), 0, "is a folder", "expected a file");
  std::ifstream in(path, std::ios::binary);
  if (!in) throw UserError(path.string(), 0, fmt::format("cannot be read: {}", std::strerror(errno)), "");
  std::string content;
  std::string chunk(1 << 16, '\0');
  while (in.read(chunk.data(), static_cast<std::streamsize>(chunk.size())) || in.gcount() > 0) {
    content.append(chunk, 0, static_cast<std::size_t>(in.gcount()));
    if (content.size() > max_bytes)
      throw UserError(path.string(), 0, "is too large", fmt::format("expected at most {} bytes", max_bytes));
  }
  return content;
}

void write_file_atomically(const fs::path& path, std::string_view content) {
  // A device such as /dev/null or a pipe cannot be renamed over; write it as it is.
  std::error_code code;
  const bool special = fs::exists(path, code) && !fs::is_regular_file(path, code);
  const fs::path target = special ? path : fs::path(fmt::format("{}.tmp{}", path.string(), ::getpid()));
  {
    std::ofstream out(target, std::ios::binary | std::ios::trunc);
    out.write(content.data(), static_cast<std::streamsize>(content.size()));
    out.flush();
    if (!out) {
      const std::string reason = std::strerror(errno);
      if (!special) fs::remove(target, code);
      throw UserError(path.string(), 0, "cannot be written: " + reason, "expected a writable place");
    }
  }
  if (special) return;
  fs::rename(target, path, code);
  if (code) {
    const std::string reason = code.message();
    fs::remove(target, code);
    throw UserError(path.string(), 0, "cannot be written: " + reason, "expected a writable place");
  }
}

fs::path user_data_folder() {
  if (const char* own = std::getenv("ORRERY_DATA_DIR"); own && *own) return own;
  if (const char* xdg = std::getenv("XDG_DATA_HOME"); xdg && *xdg) return fs::path(xdg) / "orrery";
  const char* home = std::getenv("HOME");
  return fs::path(home && *home ? home : "/tmp") / ".local/share/orrery";
}

TemporaryFolder::TemporaryFolder() {
  std::error_code error;
  const fs::path parent = fs::temp_directory_path(error);
  if (error)
    throw UserError(fmt::format("no folder for temporary files: {}", error.message()), "a writable TMPDIR");
  path_ = (parent / "orrery-XXXXXX").string();
  if (mkdtemp(path_.data()) == nullptr)
    throw UserError(path_, 0, fmt::format("cannot be made: {}", std::strerror(errno)), "a writable TMPDIR");
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace orrery
