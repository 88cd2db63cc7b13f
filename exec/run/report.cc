#include "exec/run/report.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

#include "base/answer/answer.h"
#include "base/error.h"
#include "base/file.h"

namespace orrery::exec {

bool deliver(std::string_view verb, const Json& result, const std::string& file) {
  Json json = answer_head(verb, ORRERY_VERSION);
  json.update(result);
  const std::string text = json.dump(2) + "\n";
  if (file == "-") {
    write_to_stdout(text);
    return false;
  }
  if (!file.empty()) write_file_atomically(file, text);
  return true;
}

void check_deliverable(const std::string& file) {
  if (file.empty() || file == "-" || FileInMaking(file).may_be_written()) return;
  throw UserError(file, 0, std::string("cannot be written: ") + std::strerror(errno), "a writable place");
}

}  // namespace orrery::exec
