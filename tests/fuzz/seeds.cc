#include "tests/fuzz/seeds.h"

#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "tests/support/published.h"

namespace orrery::fuzz {
namespace {

namespace fs = std::filesystem;

std::string whole_lines(const std::string& text, std::size_t from, std::size_t bytes) {
  const std::size_t begin = from == 0 ? 0 : std::min(text.find('\n', from), text.size() - 1) + 1;
  const std::size_t end = text.rfind('\n', std::min(begin + bytes, text.size()));
  return end == std::string::npos || end < begin ? "" : text.substr(begin, end + 1 - begin);
}

std::string shortened(const std::string& text) {
  if (text.size() <= kMostSeedBytes) return text;
  return whole_lines(text, 0, kMostSeedBytes / 2) + whole_lines(text, text.size() / 2, kMostSeedBytes / 2);
}

// What names processes and threads, and of the rest an unbroken piece out of the middle.
std::string fewer_events(const std::string& text) {
  constexpr std::size_t kEvents = 150;
  LargeJson json = parse_large_json(text, "a published trace");
  LargeJson& events = json.is_array() ? json : json["traceEvents"];
  LargeJson kept = LargeJson::array();
  const std::size_t middle = events.size() / 2;
  for (std::size_t i = 0; i < events.size(); ++i)
    if (events[i].value("ph", "") == "M" ? kept.size() < kEvents : i >= middle && i < middle + kEvents)
      kept.push_back(events[i]);
  events = kept;
  return json.dump();
}

// Plain or gzip.
std::string unpacked(const fs::path& file) {
  std::string text;
  std::string piece(1 << 16, '\0');
  gzFile in = gzopen(file.c_str(), "rb");
  ORRERY_CHECK(in != nullptr, "cannot be read: " + file.string());
  for (int got = 0; (got = gzread(in, piece.data(), static_cast<unsigned>(piece.size()))) > 0;)
    text.append(piece, 0, static_cast<std::size_t>(got));
  gzclose(in);
  return text;
}

std::vector<fs::path> files_below(const fs::path& folder, std::string_view begin) {
  std::vector<fs::path> files;
  std::error_code code;
  for (fs::directory_iterator at(folder, code), end; !code && at != end; at.increment(code))
    if (at->is_regular_file() && at->path().filename().string().starts_with(begin))
      files.push_back(at->path());
  std::sort(files.begin(), files.end());
  return files;
}

fs::path traces() {
  const fs::path published = test::published_folder();
  return published.empty() ? published : published / "traces";
}

}  // namespace

std::string data_file(const std::string& name) {
  return read_file(fs::path(ORRERY_TEST_DATA) / name);
}
std::string own_seed(const std::string& name) {
  return read_file(fs::path(ORRERY_SOURCE_DIR) / "tests/fuzz/seeds" / name);
}
std::vector<std::string> folder_of(const std::string& folder, std::string_view ending) {
  std::vector<std::string> all;
  for (const fs::path& file : files_below(fs::path(ORRERY_SOURCE_DIR) / folder, ""))
    if (file.string().ends_with(ending)) all.push_back(read_file(file));
  return all;
}

std::vector<std::string> published_tables(const std::string& folder) {
  constexpr std::size_t kLines = 4;
  const fs::path published = test::published_folder();
  std::vector<std::string> all;
  if (published.empty()) return all;
  for (const fs::path& file : files_below(published / folder, "")) {
    if (file.extension() != ".csv") continue;
    const std::string text = read_file(file);
    std::size_t end = 0;
    for (std::size_t line = 0; line < kLines && end < text.size(); ++line)
      end = std::min(text.find('\n', end), text.size() - 1) + 1;
    all.push_back(text.substr(0, end));
  }
  return all;
}

std::vector<std::string> published_texts(const std::string& folder, std::string_view begin) {
  std::vector<std::string> all;
  if (traces().empty()) return all;
  for (const fs::path& file : files_below(traces() / folder, begin)) all.push_back(shortened(unpacked(file)));
  return all;
}

std::vector<std::string> published_traces() {
  std::vector<std::string> all;
  if (traces().empty()) return all;
  // Long ones take seconds each to unpack, minutes under sanitizers: they are for longer runs.
  constexpr std::uintmax_t kMostBytes = 256 << 10;
  const bool longer = std::getenv("ORRERY_FUZZ_ITERATIONS") != nullptr;
  for (const fs::path& file : files_below(traces() / "kineto", ""))
    if (longer || fs::file_size(file) <= kMostBytes) all.push_back(fewer_events(unpacked(file)));
  return all;
}

std::string as_file(std::string_view bytes, const std::string& name) {
  static const TemporaryFolder folder;
  const std::string path = folder.path() + "/" + name;
  std::ofstream(path, std::ios::binary | std::ios::trunc)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return path;
}

std::vector<std::string> joined(std::vector<std::string> first, const std::vector<std::string>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

}  // namespace orrery::fuzz
