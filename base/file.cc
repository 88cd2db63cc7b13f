#include "base/file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
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

std::string first_line(const fs::path& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

FileInMaking::FileInMaking(const fs::path& path) : file_(path), written_(path) {
  std::error_code code;
  if (fs::exists(path, code) && !fs::is_regular_file(path, code)) return;
  constexpr int kMostLinks = 40;  // as Linux
  for (int link = 0; link < kMostLinks && fs::is_symlink(file_, code); ++link)
    file_ = file_.parent_path() / fs::read_symlink(file_, code);
  written_ = fmt::format("{}.tmp{}", file_.string(), ::getpid());
}

bool FileInMaking::may_be_written() const {
  std::error_code code;
  errno = fs::is_directory(file_, code) ? EISDIR : 0;
  return errno == 0 && ::access((in_place() ? file_ : fs::absolute(file_).parent_path()).c_str(), W_OK) == 0;
}

std::error_code FileInMaking::finish() const {
  std::error_code code;
  if (in_place()) return code;
  fs::rename(written_, file_, code);
  if (code) discard();
  return code;
}

void FileInMaking::discard() const {
  std::error_code ignored;
  if (!in_place()) fs::remove(written_, ignored);
}

void write_file_atomically(const fs::path& path, std::string_view content) {
  const FileInMaking file(path);
  const auto fail = [&](const std::string& reason) {
    throw UserError(path.string(), 0, "cannot be written: " + reason, "expected a writable place");
  };
  {
    std::ofstream out(file.written(), std::ios::binary | std::ios::trunc);
    out.write(content.data(), static_cast<std::streamsize>(content.size()));
    out.flush();
    if (!out) {
      const std::string reason = std::strerror(errno);
      file.discard();
      fail(reason);
    }
  }
  if (const std::error_code code = file.finish()) fail(code.message());
}

void check_writable(const std::string& file) {
  if (file.empty() || file == "-" || FileInMaking(file).may_be_written()) return;
  throw UserError(file, 0, std::string("cannot be written: ") + std::strerror(errno),
                  "expected a writable place");
}

void write_to_stdout(std::string_view text) {
  const bool refused = std::ferror(stdout) != 0;
  errno = refused ? 0 : errno;
  const bool whole = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (whole && std::fflush(stdout) == 0 && !refused) return;
  throw UserError(fmt::format("stdout cannot be written: {}",
                              errno != 0 ? std::strerror(errno) : "what came before was refused"),
                  "a place with room");
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
