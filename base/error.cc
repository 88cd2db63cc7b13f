#include "base/error.h"

#include <fmt/format.h>

namespace orrery {
namespace {

// What was expected, or where help stands.
std::string hint(std::string_view expected) {
  for (const std::string_view said : {"expected", "did you mean", "see orrery"})
    if (expected.find(said) != std::string_view::npos) return fmt::format(" ({})", expected);
  return fmt::format(" (expected {})", expected);
}

std::string one_line(std::string_view file, int line, std::string_view what, std::string_view expected) {
  std::string text;
  if (!file.empty()) text += line > 0 ? fmt::format("{}:{}: ", file, line) : fmt::format("{}: ", file);
  text += what;
  if (!expected.empty()) text += hint(expected);
  for (char& c : text) {  // one line is promised, and foreign parsers' messages may hold more
    if (c == '\n' || c == '\r') c = ' ';
  }
  return text;
}

}  // namespace

UserError::UserError(std::string_view file, int line, std::string_view what, std::string_view expected)
    : std::runtime_error(one_line(file, line, what, expected)) {}

UserError::UserError(std::string_view what, std::string_view expected) : UserError({}, 0, what, expected) {}

void fail_check(const char* condition, const char* file, int line, const std::string& detail) {
  throw InternalError(fmt::format("{}:{}: broken invariant {}: {}", file, line, condition, detail));
}

}  // namespace orrery
