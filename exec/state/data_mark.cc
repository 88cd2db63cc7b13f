// What tells one training file from another.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <vector>

#include "base/hash.h"
#include "exec/state/checkpoint.h"

namespace orrery::exec {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMarkedBytes = 1 << 20;  // at either end

std::string part_of(std::ifstream& in, std::uint64_t from, std::uint64_t bytes) {
  std::string part(bytes, '\0');
  in.clear();
  in.seekg(static_cast<std::streamoff>(from));
  in.read(part.data(), static_cast<std::streamsize>(bytes));
  part.resize(static_cast<std::size_t>(in.gcount()));
  return part;
}

}  // namespace

DataMark mark_of(const std::string& path) {
  DataMark mark;
  mark.name = path;
  if (path.empty()) return mark;
  std::error_code code;
  std::uint64_t sum = 0;
  if (fs::is_directory(path, code)) {
    std::vector<std::string> names;
    for (fs::recursive_directory_iterator at(path, code), end; !code && at != end; at.increment(code))
      names.push_back(at->path().lexically_relative(path).string());
    std::sort(names.begin(), names.end());
    mark.size = names.size();
    for (const std::string& name : names) sum = sum * kFnvPrime ^ fnv_of(name);
  } else {
    mark.size = fs::file_size(path, code);
    std::ifstream in(path, std::ios::binary);
    const std::uint64_t part = std::min(mark.size, kMarkedBytes);
    sum = fnv_of(part_of(in, 0, part));
    sum = sum * kFnvPrime ^ fnv_of(part_of(in, mark.size - part, part));
  }
  mark.check_sum = fmt::format("{:016x}", sum);
  return mark;
}

}  // namespace orrery::exec
