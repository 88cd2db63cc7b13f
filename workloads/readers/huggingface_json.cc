#include "workloads/readers/huggingface_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <vector>

#include "base/error.h"

namespace orrery::internal {
namespace {

// Behind the string that begins at `at`.
std::size_t end_of_string(std::string_view text, std::size_t at) {
  for (std::size_t i = at + 1; i < text.size(); ++i) {
    if (text[i] == '\\')
      ++i;
    else if (text[i] == '"')
      return i + 1;
  }
  return text.size();
}

bool is_key(std::string_view text, std::size_t end) {
  const std::size_t next = text.find_first_not_of(" \t\r\n", end);
  return next != std::string_view::npos && text[next] == ':';
}

}  // namespace

std::string plain_json(std::string_view text, std::string_view file) {
  std::string plain;
  std::vector<std::set<std::string_view>> keys;  // of the objects that are open
  for (std::size_t i = 0; i < text.size();) {
    std::size_t end = i + 1;
    if (text[i] == '"') {
      end = end_of_string(text, i);
      const std::string_view key = text.substr(i, end - i);
      if (is_key(text, end) && !keys.empty() && !keys.back().insert(key).second)
        throw UserError(file, 1 + static_cast<int>(std::count(text.begin(), text.begin() + i, '\n')),
                        fmt::format("{}: is given twice", key.substr(1, key.size() - 2)),
                        "expected each key once");
    } else if (text[i] == '{') {
      keys.emplace_back();
    } else if (text[i] == '}') {
      if (!keys.empty()) keys.pop_back();
    } else {
      for (const std::string_view word : {"-Infinity", "Infinity", "NaN"}) {
        if (!text.substr(i).starts_with(word)) continue;
        plain += fmt::format("\"{}\"", word);
        i += word.size();
        end = i;
        break;
      }
    }
    plain += text.substr(i, end - i);
    i = end;
  }
  return plain;
}

}  // namespace orrery::internal
