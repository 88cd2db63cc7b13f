#include "exec/run/report.h"

#include <fmt/format.h>

#include "base/answer/answer.h"
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

}  // namespace orrery::exec
