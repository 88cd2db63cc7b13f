#include "exec/launch/available_memory.h"

#include <algorithm>
#include <fstream>
#include <string>
#include <string_view>

namespace orrery {
namespace {

constexpr double kNoLimitBytes = 1e18;  // the first version writes nearly 2^63

// Of the two versions of control groups.
struct Controller {
  const char *folder, *limit, *used, *unused_files;
};
constexpr Controller kFirst = {"memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                               "total_inactive_file"};
constexpr Controller kSecond = {"", "memory.max", "memory.current", "inactive_file"};

// Nothing for "max", and where there is no such file.
std::optional<double> number_in(const std::filesystem::path& file) {
  std::ifstream in(file);
  double number = 0;
  return in >> number ? std::optional(number) : std::nullopt;
}

double number_of(const std::filesystem::path& file, std::string_view name) {
  std::ifstream in(file);
  std::string word;
  for (double number = 0; in >> word >> number;)
    if (word == name) return number;
  return 0;
}

std::optional<double> left_in(const std::filesystem::path& group, const Controller& controller) {
  const auto limit = number_in(group / controller.limit), used = number_in(group / controller.used);
  if (!limit || !used || *limit > kNoLimitBytes) return std::nullopt;
  return std::max(0.0, *limit - *used + number_of(group / "memory.stat", controller.unused_files));
}

void take_less(const std::optional<double>& bytes, std::optional<double>* least) {
  if (bytes) *least = std::min(bytes.value(), least->value_or(*bytes));
}

}  // namespace

std::optional<double> bytes_left_in_groups(const std::filesystem::path& groups,
                                           const std::filesystem::path& mounted) {
  std::optional<double> least;
  std::ifstream in(groups);
  for (std::string line; std::getline(in, line);) {  // "4:memory:/job/step", "0::/job/step"
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string names = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool memory = names.find(",memory,") != std::string::npos;
    if (!memory && names != ",,") continue;
    const Controller& controller = memory ? kFirst : kSecond;
    const std::filesystem::path top = mounted / controller.folder;
    // Every group above limits, too; what is above a container's is not mounted in it.
    for (std::filesystem::path group = std::filesystem::path(line.substr(second + 1)).relative_path();;
         group = group.parent_path()) {
      take_less(left_in(top / group, controller), &least);
      if (group.empty()) break;
    }
  }
  return least;
}

std::optional<double> available_bytes() {
  std::ifstream in("/proc/meminfo");
  std::optional<double> bytes;
  std::string name, unit;
  for (double kib = 0; in >> name >> kib && std::getline(in, unit);)
    if (name == "MemAvailable:" || name == "SwapFree:") bytes = bytes.value_or(0) + 1024 * kib;
  if (bytes) take_less(bytes_left_in_groups("/proc/self/cgroup", "/sys/fs/cgroup"), &bytes);
  return bytes;
}

}  // namespace orrery
