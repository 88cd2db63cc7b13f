#include "exec/run/report.h"

#include <fmt/format.h>

#include "base/file.h"

namespace orrery::exec {

bool deliver(const Json& result, const std::string& file) {
  const std::string text = result.dump(2) + "\n";
  if (file == "-") {
    fmt::print("{}", text);
    return false;
  }
  if (!file.empty()) write_file_atomically(file, text);
  return true;
}

}  // namespace orrery::exec
